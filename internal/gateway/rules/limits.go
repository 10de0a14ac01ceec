package rules

import (
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// Limits bound what one peer can hold. A zero field means its default.
type Limits struct {
	Header      time.Duration // for a request's header and the TLS handshake to arrive; 10 s
	ProxyHeader time.Duration // for the PROXY protocol header to arrive; 5 s
	Stall       time.Duration // for a client that makes no progress; 30 s
	Take        time.Duration // for a client that takes nothing of an answer; 2×Stall: 60 s
	Idle        time.Duration // between two requests of a connection, and before the first; 75 s
	Drain       time.Duration // for requests under way when Serve's context ends; 30 s
	Connect     time.Duration // to the upstream; 5 s
	// for the header of an upstream's answer after a request; 60 s, negative: no bound
	Upstream time.Duration
	// between two pieces of an upstream's answer that has a length, and for an upstream to take a
	// piece of a request; as Stall
	UpstreamIdle time.Duration
	// for the silence of a websocket, and between two pieces of an upstream's answer that has no
	// length; 0: no bound
	Stream time.Duration

	// Linger is for how long Serve then serves what comes on kept connections, and asks their
	// clients with each answer to go elsewhere, before it closes idle ones; 0: it closes them at
	// once.
	Linger time.Duration

	// Rate is the minimum rate, in bytes a second, at which a client sends a body, or takes an
	// answer; 500, negative: no minimum. Only time in which we wait for the client counts. Grace is
	// for how long a client may be slower in all; 20 s. Bytes earn it back. For answers it is Take
	// at least. All streams of an HTTP/2 connection count as one client. Upload is for how long in
	// all the body of one request is waited for; 0: no bound.
	Rate   int64
	Grace  time.Duration
	Upload time.Duration

	HeaderBytes int // of a request's header; 64 KiB
	Streams     int // at a time on one HTTP/2 connection; 128

	// Body is the size of a request's body: 16 MiB before a handler, no bound before an upstream;
	// negative: no bound.
	Body int64
}

// WithDefaults returns the limits with the defaults in place of zeros. upstream is false before a
// handler.
func (l Limits) WithDefaults(upstream bool) Limits {
	for _, d := range []struct {
		field    *time.Duration
		fallback time.Duration
	}{
		{&l.Header, 10 * time.Second}, {&l.ProxyHeader, 5 * time.Second}, {&l.Stall, 30 * time.Second},
		{&l.Grace, 20 * time.Second}, {&l.Idle, 75 * time.Second}, {&l.Drain, 30 * time.Second}, {&l.Connect, 5 * time.Second}, {&l.Upstream, time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.fallback
		}
	}
	if l.UpstreamIdle == 0 {
		l.UpstreamIdle = l.Stall
	}
	if l.Take == 0 {
		l.Take = 2 * l.Stall
	}
	if l.Rate == 0 {
		l.Rate = 500
	}
	if l.HeaderBytes == 0 {
		l.HeaderBytes = 64 << 10
	}
	if l.Streams == 0 {
		l.Streams = 128
	}
	if l.Body == 0 && !upstream {
		l.Body = 16 << 20
	}
	return l
}

// Tunnel returns how long a websocket may last, which end closes.
func (l *Limits) Tunnel(end func()) *pace.Tunnel {
	return &pace.Tunnel{Idle: l.Stream, Half: l.Stall, Most: halves * l.Stall, End: end}
}

// halves is how many times Stall a websocket may last after one side has ended its half, however
// much the other sends: RFC 6455, section 7.1.1, lets nobody continue then, but a backend that only
// pings would for ever.
const halves = 10

// pace returns how slow a client that sends a request may be.
func (l *Limits) pace() pace.Limits {
	return pace.Limits{Stall: l.Stall, Take: l.Take, Rate: l.Rate, Grace: l.Grace, Upload: l.Upload}
}
