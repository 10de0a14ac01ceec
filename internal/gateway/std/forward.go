package std

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/wire"
)

// forward sends a request to its upstream by the pool of its site, and passes the answer on.
func (e *Engine) forward(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(w)
	c := relay.New()
	defer c.End()
	c.Pool, c.Method, c.Buffers, c.Log = x.Site.Pool, r.Method, &e.buffers, e.Log
	c.Inform = func(a *wire.Response) { x.passInterim(w, a) }
	target := e.targetOf(r, x.Site)
	if !isSendable(target) {
		write(w, e.RejectMalformed(wire.BadTarget.Status, wire.BadTarget.Reason))
		return
	}
	var failed error
	status := 0 // of the upstream's answer
	if trace := e.options.TraceUpstream; trace != nil {
		traced := *r
		traced.Header = maps.Clone(r.Header)
		end := trace(r.Context(), r.Method, traced.Header)
		defer func() { end(c.At, status, failed) }()
		r = &traced
	}
	if x.isExpecting(r) {
		c.Continue = func() { w.WriteHeader(http.StatusContinue) }
	}
	if failed = x.ask(c, r, target); failed != nil {
		e.forwardFailed(w, r, failed)
		return
	}
	if status = c.Answer.Status; status == http.StatusSwitchingProtocols {
		if failed = x.switchProtocols(w, c); failed != nil {
			e.forwardFailed(w, r, failed)
		}
		return
	}
	announced := x.passHead(w, c)
	if failed = x.passBody(w, c); failed != nil {
		panic(http.ErrAbortHandler) // as net/http ends an answer that broke off
	}
	x.passTrailers(w, c, announced)
}

// ask sends a request to its upstream, and reads the head of the answer.
func (x *exchange) ask(c *relay.Call, r *http.Request, target string) error {
	length, err := x.lengthOf(r)
	if err == nil {
		x.appendHead(c, r, target, length)
		err = addBody(c, r, length)
	}
	if err != nil {
		return &relay.BodyError{Err: err}
	}
	now := time.Now()
	asked := now.Sub(x.Start)
	err = c.Do(r.Context(), now)
	x.UpstreamTime = time.Since(x.Start) - asked
	x.Upstream = c.At
	return err
}

// forwardFailed answers for an upstream that did not, or for a request whose body did not arrive.
func (e *Engine) forwardFailed(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(w)
	if x.isHijacked {
		return // the connection is the websocket's, and over
	}
	if x.body.isUnread() {
		x.endEarly() // else net/http would wait for the rest before it sends the answer
	}
	var broke *relay.BodyError
	var large *http.MaxBytesError
	sent := x.body.failure()
	switch {
	case errors.As(err, &broke) && (errors.As(err, &large) || pace.IsTimeout(err)):
		write(w, rules.BodyFailed(broke.Err))
	case pace.IsTimeout(sent): // which ends HTTP/1.1's context too
		write(w, rules.BodyFailed(sent))
	case x.hasLeft():
		x.Gone = x.Status == 0 // the connection, or the stream, is ended then
	case broke != nil:
		write(w, rules.BodyFailed(broke.Err))
	default:
		write(w, e.NoUpstream(x.Site, r.Method, x.Upstream, err))
	}
}

// targetOf returns the target that the upstream is asked for.
func (e *Engine) targetOf(r *http.Request, site *rules.Site) string {
	path, query := e.Target(r.RequestURI, r.URL)
	target := site.EscapedBase + path
	if query != "" || r.URL.ForceQuery {
		target += "?" + query
	}
	return target
}

// isSendable reports whether a target can stand in a request line. HTTP/2 could carry blanks and
// control characters in one.
func isSendable(target string) bool {
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// lengthOf returns the length of the request's body; wire.Chunked if that is not known. A client of
// HTTP/2 may send the end of its stream apart from the head also if there is no body. The beginning
// is awaited then if the method gives a body no meaning: few such requests have one, and it has its
// price (see rules.Onward).
func (x *exchange) lengthOf(r *http.Request) (int64, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return 0, nil
	case r.ContentLength >= 0:
		return r.ContentLength, nil
	case !x.http2, rules.ExpectsBody(r.Method):
		return wire.Chunked, nil
	}
	var begin [1]byte
	if _, err := io.ReadFull(r.Body, begin[:]); errors.Is(err, io.EOF) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	r.Body = &begun{io.MultiReader(strings.NewReader(string(begin[:])), r.Body), r.Body}
	return wire.Chunked, nil
}

// begun is a body whose first byte was read already.
type begun struct {
	io.Reader
	io.Closer
}

// appendHead appends the head that the upstream receives: the target that was counted, the fields
// that are forwarded, and what rules.Onward adds.
func (x *exchange) appendHead(c *relay.Call, r *http.Request, target string, length int64) {
	e := x.engine
	head := headOf(r)
	head.Length = length
	onward := e.Onward(&head, x.Site)
	c.Alone, c.Upgrades = onward.Alone, onward.Websocket

	b := append(append(append(c.Request[:0], r.Method...), ' '), target...)
	b = wire.AppendField(append(b, " HTTP/1.1\r\n"...), "Host", onward.Host)
	b = e.appendForwarded(b, r.Header)
	b = e.AppendForwarding(b, &onward, x.chain)
	if onward.Websocket {
		b = wire.AppendField(append(b, "Connection: Upgrade\r\n"...), "Upgrade", head.Upgrade[0])
	}
	switch {
	case length == wire.Chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		if trailers := e.trailersOf(r); len(trailers) > 0 {
			b = wire.AppendField(b, "Trailer", strings.Join(trailers, ", "))
			c.Trailers = func() []wire.Field { return fieldsOf(r.Trailer, trailers) }
		}
	case length > 0 || rules.ExpectsBody(r.Method):
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), length, 10), "\r\n"...)
	}
	if c.Continue != nil {
		b = append(b, "Expect: 100-continue\r\n"...)
	}
	if onward.Alone {
		b = append(b, "Connection: close\r\n"...)
	}
	c.Request = append(b, "\r\n"...)
}

// headOf returns the values that rules.Onward needs of a request, but the length of its body.
func headOf(r *http.Request) rules.Head {
	h := rules.Head{
		Method: r.Method, Minor: 1, Host: r.Host, Peer: r.RemoteAddr, Secure: r.TLS != nil, Proto: r.Header[rules.ForwardedProto],
	}
	if !r.ProtoAtLeast(1, 1) {
		h.Minor = 0
	}
	if r.ProtoMajor == 1 && slices.ContainsFunc(r.Header["Connection"], func(v string) bool { return rules.Names(v, "upgrade") }) {
		h.Upgrade = r.Header["Upgrade"] // HTTP/2 has none
	}
	if r.TLS != nil {
		h.Chains = r.TLS.VerifiedChains
	}
	return h
}

// isExpecting reports whether the client still waits for 100 Continue before it sends its body.
// net/http's server has refused every other expectation. Over HTTP/2 it does not pass that one on,
// and answers it when the body is read.
func (x *exchange) isExpecting(r *http.Request) bool {
	return r.Header["Expect"] != nil && r.ProtoMajor == 1 && r.ProtoAtLeast(1, 1) && r.ContentLength != 0 && !x.body.isBegun()
}

// appendForwarded appends the fields that are forwarded as they came, by name.
func (e *Engine) appendForwarded(b []byte, h http.Header) []byte {
	var room [32]string
	names := room[:0]
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values := h[name]
		switch {
		case name == "Te" && slices.ContainsFunc(values, func(v string) bool { return rules.Names(v, "trailers") }):
			b = append(b, "Te: trailers\r\n"...)
		case !rules.IsForwarded(name) || slices.ContainsFunc(values, func(v string) bool { return e.HidesField(name, v) }):
		default:
			for _, v := range values {
				b = wire.AppendField(b, name, strings.Trim(v, " \t")) // as HTTP/1.1 reads it
			}
		}
	}
	return b
}

// passesTrailer reports whether a trailer of a request is forwarded.
func (e *Engine) passesTrailer(name string) bool {
	return !rules.IsWithheld(name) && !e.HidesName(name) && wire.MayTrail(name)
}

// trailersOf returns the names of the trailers that the request announces and that are forwarded.
func (e *Engine) trailersOf(r *http.Request) (names []string) {
	for name := range r.Trailer {
		if e.passesTrailer(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// fieldsOf returns the fields of a header that have one of the names.
func fieldsOf(h http.Header, names []string) (fields []wire.Field) {
	for _, name := range names {
		for _, v := range h[name] {
			fields = append(fields, wire.Field{Name: name, Value: strings.Trim(v, " \t")})
		}
	}
	return fields
}

// maxGathered is the size of the largest body that is awaited whole before the request is sent, so
// that it is sent in one write.
const maxGathered = 16 << 10

// addBody adds the body to the request: whole if it is short, else as it comes.
func addBody(c *relay.Call, r *http.Request, length int64) error {
	switch {
	case length == 0:
		return nil
	case length < 0:
		c.How = relay.Chunked
		fallthrough
	case length > maxGathered, c.Continue != nil:
		c.Body, c.Length = r.Body, max(length, 0)
		return nil
	}
	n := len(c.Request)
	c.Request = slices.Grow(c.Request, int(length))[:n+int(length)]
	if _, err := io.ReadFull(r.Body, c.Request[n:]); err != nil {
		return err
	}
	// HTTP/2 may send the end apart from the last byte
	var more [1]byte
	if _, err := r.Body.Read(more[:]); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
