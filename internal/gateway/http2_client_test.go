package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// byNetHTTP reports whether net/http serves the HTTP/2 connections of this gateway.
func (e *edge) byNetHTTP() bool { return !e.gateway.Fast() }

// A peer is a client's HTTP/2 connection, written frame by frame, also against the rules. It
// reads only when it is asked to, and never fails a test: what went wrong is part of its outcome.
// One goroutine uses it at a time.
type peer struct {
	net.Conn
	*http2.Framer
	scheme string

	encoded bytes.Buffer
	enc     *hpack.Encoder
	dec     *hpack.Decoder

	server  map[http2.SettingID]uint32 // what the server has announced
	streams map[uint32]*arrived
	first   http2.FrameType   // of the server's frames
	acked   int               // SETTINGS of ours
	pongs   map[[8]byte]int   // acknowledged PINGs, by what they carry
	windows map[uint32]uint32 // what WINDOW_UPDATEs have added, by stream
	goAway  *http2.GoAwayFrame
	ended   error // why nothing more can be read

	watched uint32 // the stream whose outcome counts; 0: none
	quiet   bool   // nothing need come on it
	gate    string // of requests to /hold, see gated
	release func() // opens it
}

// An arrived is what has come on a stream.
type arrived struct {
	interim  []string
	status   string
	fields   []hpack.HeaderField
	trailers []hpack.HeaderField
	body     []byte
	length   int // of the body, which is not kept beyond maxKept
	most     int // the longest DATA frame
	done     bool
	reset    bool
	code     http2.ErrCode
}

// maxKept is how much of a body is kept.
const maxKept = 64 << 10

// field returns the value of a field of the final answer.
func (r *arrived) field(name string) string {
	for _, f := range r.fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// frames connects, in clear if config is nil, and sends nothing yet.
func (e *edge) frames(config *tls.Config) (*peer, error) {
	c, err := net.Dial("tcp", e.addr)
	if err != nil {
		return nil, err
	}
	e.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	scheme := "http"
	if config != nil {
		config = config.Clone()
		config.NextProtos = []string{"h2"}
		secure := tls.Client(c, config)
		if err := secure.Handshake(); err != nil {
			return nil, err
		}
		if got := secure.ConnectionState().NegotiatedProtocol; got != "h2" {
			return nil, fmt.Errorf("ALPN has chosen %q, want h2", got)
		}
		c, scheme = secure, "https"
	}
	f := &peer{
		Conn: c, Framer: http2.NewFramer(c, c), scheme: scheme, dec: hpack.NewDecoder(4096, nil),
		server: map[http2.SettingID]uint32{}, streams: map[uint32]*arrived{}, pongs: map[[8]byte]int{}, windows: map[uint32]uint32{}, release: func() {},
	}
	f.first = 0xff
	f.AllowIllegalWrites = true
	f.SetMaxReadFrameSize(1<<24 - 1)
	f.enc = hpack.NewEncoder(&f.encoded)
	return f, nil
}

// mustFrames connects, and exchanges the prefaces.
func (e *edge) mustFrames(config *tls.Config, settings ...http2.Setting) *peer {
	e.t.Helper()
	f, err := e.frames(config)
	if err != nil {
		e.t.Fatal(err)
	}
	if err := f.start(settings...); err != nil {
		e.t.Fatal(err)
	}
	return f
}

// start exchanges the prefaces and their acknowledgements.
func (c *peer) start(settings ...http2.Setting) error {
	_, _ = io.WriteString(c.Conn, http2.ClientPreface)
	_ = c.WriteSettings(settings...)
	if !c.until(func() bool { return c.acked == 1 && c.first == http2.FrameSettings }) {
		return fmt.Errorf("the prefaces are not exchanged: %w; the first frame was %v", c.ended, c.first)
	}
	return nil
}

// until reads frames until there is what is waited for, and has the whole of patience for that. It
// returns false if the connection ends before.
func (c *peer) until(ok func() bool) bool {
	_ = c.SetDeadline(time.Now().Add(patience))
	for !ok() {
		if !c.next() {
			return false
		}
	}
	return true
}

// next reads a frame. It returns false if there is none any more.
func (c *peer) next() bool {
	if c.ended != nil {
		return false
	}
	frame, err := c.ReadFrame()
	if err != nil {
		c.ended = err
		return false
	}
	if c.first == 0xff {
		c.first = frame.Header().Type
	}
	switch frame := frame.(type) {
	case *http2.SettingsFrame:
		c.note(frame)
	case *http2.PingFrame:
		if frame.IsAck() {
			c.pongs[frame.Data]++
		} else {
			_ = c.WritePing(true, frame.Data)
		}
	case *http2.WindowUpdateFrame:
		c.windows[frame.StreamID] += frame.Increment
	case *http2.GoAwayFrame:
		c.goAway = frame
	case *http2.RSTStreamFrame:
		if s := c.stream(frame.StreamID); !s.reset { // the first says why
			s.reset, s.code = true, frame.ErrCode
		}
	case *http2.HeadersFrame:
		c.readHead(frame)
	case *http2.DataFrame:
		s := c.stream(frame.StreamID)
		s.body = append(s.body, frame.Data()[:min(len(frame.Data()), maxKept-len(s.body))]...)
		s.length += len(frame.Data())
		s.most = max(s.most, len(frame.Data()))
		s.done = s.done || frame.StreamEnded()
	}
	return c.ended == nil
}

// note notes the server's settings, and acknowledges them.
func (c *peer) note(f *http2.SettingsFrame) {
	if f.IsAck() {
		c.acked++
		return
	}
	_ = f.ForeachSetting(func(s http2.Setting) error { c.server[s.ID] = s.Val; return nil })
	_ = c.WriteSettingsAck()
}

// stream returns what has come on a stream.
func (c *peer) stream(id uint32) *arrived {
	s := c.streams[id]
	if s == nil {
		s = new(arrived)
		c.streams[id] = s
	}
	return s
}

// readHead reads a head with its continuations.
func (c *peer) readHead(f *http2.HeadersFrame) {
	s, block, end, last := c.stream(f.StreamID), bytes.Clone(f.HeaderBlockFragment()), f.HeadersEnded(), f.StreamEnded()
	for !end {
		more, err := c.ReadFrame()
		if err != nil {
			c.ended = err
			return
		}
		continued, ok := more.(*http2.ContinuationFrame)
		if !ok {
			c.ended = fmt.Errorf("a frame between the parts of a head: %v", more)
			return
		}
		block, end = append(block, continued.HeaderBlockFragment()...), continued.HeadersEnded()
	}
	fields, err := c.dec.DecodeFull(block)
	if err != nil {
		c.ended = fmt.Errorf("an answer's head: %w", err)
		return
	}
	switch {
	case s.status != "":
		s.trailers = fields
	case len(fields) == 0 || fields[0].Name != ":status":
		c.ended = fmt.Errorf("an answer's head begins with %v", fields)
		return
	case fields[0].Value[0] == '1':
		s.interim = append(s.interim, fields[0].Value)
	default:
		s.status, s.fields = fields[0].Value, fields
	}
	s.done = s.done || last
}

// The flags of a HEADERS frame.
const (
	endStream  = http2.FlagHeadersEndStream
	endHeaders = http2.FlagHeadersEndHeaders
	endBoth    = endStream | endHeaders
)

// head sends a HEADERS frame with these fields, each "name: value", encoded.
func (c *peer) head(id uint32, flags http2.Flags, fields ...string) {
	c.rawHead(id, flags, c.encode(fields...))
}

// rawHead sends a HEADERS frame with this block.
func (c *peer) rawHead(id uint32, flags http2.Flags, block []byte) {
	if c.watched == 0 {
		c.watched = id
	}
	_ = c.WriteRawFrame(http2.FrameHeaders, flags, id, block)
}

// encode returns the block of these fields, which leaves the table as it is.
func (c *peer) encode(fields ...string) []byte {
	c.encoded.Reset()
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		_ = c.enc.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true})
	}
	return bytes.Clone(c.encoded.Bytes())
}

// request returns the fields of a request, and more after them.
func (c *peer) request(method, path string, more ...string) []string {
	return append([]string{":method: " + method, ":scheme: " + c.scheme, ":authority: weir.test", ":path: " + path}, more...)
}

// get sends a whole GET request.
func (c *peer) get(id uint32, path string, more ...string) {
	c.head(id, endBoth, c.request("GET", path, more...)...)
}

// post sends the head of a POST request.
func (c *peer) post(id uint32, path string, more ...string) {
	c.head(id, endHeaders, c.request("POST", path, more...)...)
}

// hold sends a GET request that the upstream does not answer before release.
func (c *peer) hold(id uint32) { c.get(id, "/v1/wp/hold", "x-gate: "+c.gate) }

// data sends a DATA frame, the last one of the stream or not.
func (c *peer) data(id uint32, end bool, data string) { _ = c.WriteData(id, end, []byte(data)) }

// write sends bytes, whole frames or not.
func (c *peer) write(bytes string) { _, _ = io.WriteString(c.Conn, bytes) }

// raw sends any frame.
func (c *peer) raw(kind http2.FrameType, flags http2.Flags, id uint32, payload string) {
	_ = c.WriteRawFrame(kind, flags, id, []byte(payload))
}

// answered waits for the end of a stream.
func (c *peer) answered(id uint32) *arrived {
	s := c.stream(id)
	c.until(func() bool { return s.done || s.reset })
	return s
}

// settled waits until the server has read all frames that were sent, and written what it had for
// them.
func (c *peer) settled() bool {
	data := [8]byte{'s', byte(len(c.pongs))}
	_ = c.WritePing(false, data)
	return c.until(func() bool { return c.pongs[data] > 0 })
}

// goesOn is the outcome of frames that need no answer.
const goesOn = "goes on"

// outcome waits for what the server makes of the frames that were sent. It is one of
//
//	GOAWAY CODE      the connection has ended with this error
//	end              the connection has ended without an error
//	RST_STREAM CODE  the watched stream has ended with this error
//	200              the watched stream was answered with this status
//	half of a 200    likewise, but the answer broke off
//	goes on          no stream is watched, or nothing came on it, and the connection works
//
// or begins with "broken: " if the server itself does not speak HTTP/2, or does nothing.
func (c *peer) outcome() string {
	defer c.release()
	if c.settled() {
		c.release()
		s := c.stream(c.watched)
		if c.watched == 0 || c.quiet && s.status == "" && !s.reset {
			return goesOn
		}
		c.answered(c.watched)
		if c.ended == nil {
			return s.outcome()
		}
	}
	switch {
	case c.goAway != nil && c.goAway.ErrCode != http2.ErrCodeNo && isEnd(c.ended):
		return "GOAWAY " + c.goAway.ErrCode.String()
	case isEnd(c.ended):
		return "end"
	}
	return fmt.Sprintf("broken: %v", c.ended)
}

func (r *arrived) outcome() string {
	switch {
	case r.done:
		return r.status // a RST_STREAM behind it may ask for no more of the request
	case r.status != "":
		return "half of a " + r.status
	}
	return "RST_STREAM " + r.code.String()
}

// isEnd reports whether an error of reading is the end of the connection, regular or not.
func isEnd(err error) bool {
	var network net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) && !pace.IsTimeout(err)
}

// isOneOf reports whether an outcome is one of those that are separated by " | ".
func isOneOf(outcome, allowed string) bool {
	for _, a := range strings.Split(allowed, " | ") {
		if outcome == a {
			return true
		}
	}
	return false
}
