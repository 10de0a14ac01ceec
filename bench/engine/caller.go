package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A protocol is how a load asks, and over how many connections.
type protocol struct {
	tls     bool
	http2   bool // with tls
	conns   int
	streams int    // requests at a time on each of them
	trust   string // the file of the certificate that is trusted, with tls
}

// A caller is one connection of a load. A read that finds nothing returns errNotReady.
type caller interface {
	// send queues a request that was due at a time. The caller must have room for it.
	send(due time.Duration) error
	// flush writes what was queued.
	flush() error
	// receive reads what has come, and reports for each request that is now answered when it was
	// due.
	receive(answered func(due time.Duration)) error
}

// errNotReady is the error of a read that would have to wait. It is temporary, so that crypto/tls
// continues where it was.
var errNotReady = notReady{}

type notReady struct{}

func (notReady) Error() string   { return "nothing to read yet" }
func (notReady) Timeout() bool   { return true }
func (notReady) Temporary() bool { return true }

// callerRoom is the longest answer of an HTTP/1.1 server, with its head.
const callerRoom = 4 << 10

// An http1Caller has one request at a time on its connection.
type http1Caller struct {
	conn    io.ReadWriter
	request []byte
	due     time.Duration
	waits   bool   // for an answer
	in      []byte // what has come of it
}

func newHTTP1Caller(conn io.ReadWriter) *http1Caller {
	return &http1Caller{conn: conn, request: []byte(request(smallPath, "")), in: make([]byte, 0, callerRoom)}
}

func (c *http1Caller) send(due time.Duration) error {
	c.due, c.waits = due, true
	_, err := c.conn.Write(c.request)
	return err
}

// flush does nothing: a request is written when it is sent.
func (c *http1Caller) flush() error { return nil }

func (c *http1Caller) receive(answered func(due time.Duration)) error {
	for {
		n, err := c.conn.Read(c.in[len(c.in):cap(c.in)])
		c.in = c.in[:len(c.in)+n]
		if n > 0 && !c.waits {
			return fmt.Errorf("an answer to no request:\n%s", c.in)
		}
		if whole, err := c.isWhole(); err != nil {
			return err
		} else if whole {
			c.in, c.waits = c.in[:0], false
			answered(c.due)
		}
		switch {
		case errors.Is(err, errNotReady):
			return nil
		case err != nil:
			return fmt.Errorf("read an answer: %w", err)
		}
	}
}

// isWhole reports whether the answer has come to its end, and nothing more.
func (c *http1Caller) isWhole() (bool, error) {
	i := bytes.Index(c.in, headEnd)
	if i < 0 && len(c.in) < cap(c.in) {
		return false, nil
	}
	m, err := parseHead(c.in[:i+len(headEnd)], len(c.in)-i-len(headEnd))
	if i < 0 || err != nil || m.status() != 200 || m.length < int64(m.beyond) || int64(i)+m.length > callerRoom {
		return false, fmt.Errorf("an answer is not of 200 with at most %d bytes and their length:\n%s", callerRoom, c.in)
	}
	return m.length == int64(m.beyond), nil
}

// An http2Caller has some streams at a time on its connection. golang.org/x/net has the frames and
// the fields; a client of that package has three goroutines a connection, which cost more than the
// servers that are measured.
type http2Caller struct {
	conn    io.ReadWriter
	streams uint32
	in, out bytes.Buffer
	head    bytes.Buffer
	room    []byte
	frames  *http2.Framer
	encoder *hpack.Encoder
	decoder *hpack.Decoder
	next    uint32
	open    map[uint32]openStream
	status  string // of the head that is being decoded
}

// An openStream is a request without an answer.
type openStream struct {
	due    time.Duration
	served bool // its head has come, with status 200
}

// http2Window is what a connection may receive in all: the answers of a run need far less.
const http2Window = 1<<31 - 1

// newHTTP2Caller queues what begins a connection. It reads into room, which others may use too.
func newHTTP2Caller(conn io.ReadWriter, streams int, room []byte) (*http2Caller, error) {
	c := &http2Caller{conn: conn, streams: uint32(streams), room: room, next: 1, open: map[uint32]openStream{}}
	c.frames = http2.NewFramer(&c.out, &c.in)
	c.frames.SetReuseFrames()
	c.encoder = hpack.NewEncoder(&c.head)
	c.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			c.status = f.Value
		}
	})
	c.out.WriteString(http2.ClientPreface)
	err := errors.Join(
		c.frames.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}),
		c.frames.WriteWindowUpdate(0, http2Window-65535),
	)
	return c, err
}

func (c *http2Caller) send(due time.Duration) error {
	c.head.Reset()
	for _, f := range [...]hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: "api.example.com"}, {Name: ":path", Value: smallPath}} {
		if err := c.encoder.WriteField(f); err != nil {
			return err
		}
	}
	c.open[c.next] = openStream{due: due}
	err := c.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: c.next, BlockFragment: c.head.Bytes(), EndStream: true, EndHeaders: true})
	c.next += 2
	return err
}

func (c *http2Caller) flush() error {
	if c.out.Len() == 0 {
		return nil
	}
	_, err := c.conn.Write(c.out.Bytes())
	c.out.Reset()
	return err
}

func (c *http2Caller) receive(answered func(due time.Duration)) error {
	for {
		n, err := c.conn.Read(c.room)
		c.in.Write(c.room[:n])
		for c.hasFrame() {
			if err := c.take(answered); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, errNotReady):
			return c.flush() // acknowledgements
		case err != nil:
			return fmt.Errorf("read answers: %w", err)
		}
	}
}

// hasFrame reports whether a whole frame has come.
func (c *http2Caller) hasFrame() bool {
	const head = 9
	if c.in.Len() < head {
		return false
	}
	h, err := http2.ReadFrameHeader(bytes.NewReader(c.in.Bytes()[:head]))
	return err == nil && c.in.Len() >= head+int(h.Length)
}

// take reads one frame.
func (c *http2Caller) take(answered func(due time.Duration)) error {
	frame, err := c.frames.ReadFrame()
	if err != nil {
		return fmt.Errorf("read a frame: %w", err)
	}
	switch f := frame.(type) {
	case *http2.HeadersFrame:
		return c.takeHead(f, answered)
	case *http2.DataFrame:
		if f.StreamEnded() {
			return c.end(f.StreamID, answered)
		}
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if n, ok := f.Value(http2.SettingMaxConcurrentStreams); ok && n < c.streams {
			return fmt.Errorf("the server allows %d streams at a time, want at least %d", n, c.streams)
		}
		return c.frames.WriteSettingsAck()
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.frames.WritePing(true, f.Data)
		}
	case *http2.RSTStreamFrame, *http2.GoAwayFrame:
		return fmt.Errorf("the server ends the stream or the connection: %v", f)
	}
	return nil
}

func (c *http2Caller) takeHead(f *http2.HeadersFrame, answered func(due time.Duration)) error {
	c.status = ""
	if _, err := c.decoder.Write(f.HeaderBlockFragment()); err != nil {
		return fmt.Errorf("decode a head: %w", err)
	}
	if !f.HeadersEnded() {
		return errors.New("a head has more than one frame")
	}
	if err := c.decoder.Close(); err != nil {
		return fmt.Errorf("decode a head: %w", err)
	}
	s, ok := c.open[f.StreamID]
	if !ok || c.status != "200" {
		return fmt.Errorf("stream %d, open %t, is answered %q, want 200", f.StreamID, ok, c.status)
	}
	s.served = true
	c.open[f.StreamID] = s
	if f.StreamEnded() {
		return c.end(f.StreamID, answered)
	}
	return nil
}

func (c *http2Caller) end(stream uint32, answered func(due time.Duration)) error {
	s := c.open[stream]
	if !s.served {
		return fmt.Errorf("stream %d ends without an answer", stream)
	}
	delete(c.open, stream)
	answered(s.due)
	return nil
}

// A ring is a queue of at most a fixed number of elements.
type ring[T any] struct {
	all      []T
	first, n int
}

func newRing[T any](room int) ring[T] { return ring[T]{all: make([]T, room)} }

func (r *ring[T]) len() int { return r.n }

// push adds x at the end. There must be room for it.
func (r *ring[T]) push(x T) {
	r.all[(r.first+r.n)%len(r.all)] = x
	r.n++
}

// pop removes the first one. There must be one.
func (r *ring[T]) pop() T {
	x := r.all[r.first]
	r.first = (r.first + 1) % len(r.all)
	r.n--
	return x
}
