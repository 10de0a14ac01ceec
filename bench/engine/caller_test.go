package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A wire is a connection in memory: it keeps what is written, and is read in the given pieces.
type wire struct {
	out    bytes.Buffer
	pieces [][]byte
}

func (w *wire) Write(b []byte) (int, error) { return w.out.Write(b) }

func (w *wire) Read(b []byte) (int, error) {
	if len(w.pieces) == 0 {
		return 0, errNotReady
	}
	n := copy(b, w.pieces[0])
	if w.pieces[0] = w.pieces[0][n:]; len(w.pieces[0]) == 0 {
		w.pieces = w.pieces[1:]
	}
	return n, nil
}

// cut returns the text in pieces of a size.
func cut(text []byte, size int) [][]byte { return slices.Collect(slices.Chunk(text, size)) }

// receiveAll returns when the requests were due that are answered by what has come.
func receiveAll(c caller) (due []time.Duration, err error) {
	err = c.receive(func(d time.Duration) { due = append(due, d) })
	return due, err
}

func TestAnswersOfHTTP1(t *testing.T) {
	const good = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello\n"
	for _, c := range []struct {
		what, text string
		want       []time.Duration
		fails      bool
	}{
		{"an answer", good, []time.Duration{7}, false},
		{"an answer without its end", good[:len(good)-1], nil, false},
		{"a head without its end", good[:20], nil, false},
		{"two answers to one request", good + good, nil, true},
		{"429", strings.Replace(good, "200", "429", 1), nil, true},
		{"no length", "HTTP/1.1 200 OK\r\n\r\n", nil, true},
		{"more than there is room for", "HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n", nil, true},
		{"a head that does not end", strings.Repeat("x", callerRoom), nil, true},
	} {
		for _, size := range []int{1, 3, len(c.text)} {
			w := &wire{}
			caller := newHTTP1Caller(w)
			if err := caller.send(7); err != nil || w.out.String() != request(smallPath, "") {
				t.Fatalf("%s: sent %q, %v", c.what, w.out.String(), err)
			}
			w.pieces = cut([]byte(c.text), size)
			due, err := receiveAll(caller)
			if (err != nil) != c.fails || !c.fails && !slices.Equal(due, c.want) {
				t.Errorf("%s, by %d bytes: %v, %v, want %v", c.what, size, due, err, c.want)
			}
		}
	}
	w := &wire{pieces: [][]byte{[]byte(good)}}
	if due, err := receiveAll(newHTTP1Caller(w)); err == nil {
		t.Errorf("an answer without a request: %v", due)
	}
}

// An http2Server writes the frames of a server.
type http2Server struct {
	*http2.Framer
	out, head bytes.Buffer
	encoder   *hpack.Encoder
}

func newHTTP2Server() *http2Server {
	s := &http2Server{}
	s.Framer = http2.NewFramer(&s.out, nil)
	s.encoder = hpack.NewEncoder(&s.head)
	return s
}

// answer writes an answer with a body.
func (s *http2Server) answer(stream uint32, status string) {
	s.begin(stream, status, false)
	s.WriteData(stream, true, []byte("hello\n"))
}

// begin writes a head.
func (s *http2Server) begin(stream uint32, status string, end bool) {
	s.head.Reset()
	s.encoder.WriteField(hpack.HeaderField{Name: ":status", Value: status})
	s.encoder.WriteField(hpack.HeaderField{Name: "x-ratelimit-limit", Value: "10"})
	s.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: s.head.Bytes(), EndHeaders: true, EndStream: end})
}

func TestAnswersOfHTTP2(t *testing.T) {
	for _, c := range []struct {
		what  string
		write func(s *http2Server)
		want  []time.Duration // of three requests, due at 1, 3 and 5
		fails bool
	}{
		{"in another order", func(s *http2Server) { s.answer(5, "200"); s.answer(1, "200"); s.answer(3, "200") }, []time.Duration{5, 1, 3}, false},
		{"among other frames", func(s *http2Server) {
			s.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 4})
			s.begin(1, "200", false)
			s.WriteSettingsAck()
			s.WritePing(false, [8]byte{1})
			s.WriteWindowUpdate(0, 1)
			s.WriteData(1, false, []byte("hello"))
			s.WriteData(1, true, nil)
		}, []time.Duration{1}, false},
		{"without a body", func(s *http2Server) { s.begin(3, "200", true) }, []time.Duration{3}, false},
		{"without its end", func(s *http2Server) { s.begin(3, "200", false) }, nil, false},
		{"429", func(s *http2Server) { s.answer(1, "429") }, nil, true},
		{"of no request", func(s *http2Server) { s.answer(7, "200") }, nil, true},
		{"twice", func(s *http2Server) { s.answer(1, "200"); s.answer(1, "200") }, nil, true},
		{"a body without a head", func(s *http2Server) { s.WriteData(1, true, nil) }, nil, true},
		{"a reset", func(s *http2Server) { s.WriteRSTStream(1, http2.ErrCodeRefusedStream) }, nil, true},
		{"the server goes away", func(s *http2Server) { s.WriteGoAway(5, http2.ErrCodeNo, nil) }, nil, true},
		{"fewer streams than are needed", func(s *http2Server) {
			s.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 2})
		}, nil, true},
	} {
		for _, size := range []int{1, 10, 1000} {
			w := &wire{}
			caller, err := newHTTP2Caller(w, 3, make([]byte, 100))
			if err != nil {
				t.Fatal(err)
			}
			for _, due := range []time.Duration{1, 3, 5} {
				if err := caller.send(due); err != nil {
					t.Fatal(err)
				}
			}
			if err := caller.flush(); err != nil {
				t.Fatal(err)
			}
			server := newHTTP2Server()
			c.write(server)
			w.pieces = cut(server.out.Bytes(), size)
			due, err := receiveAll(caller)
			if (err != nil) != c.fails || !c.fails && !slices.Equal(due, c.want) {
				t.Errorf("%s, by %d bytes: %v, %v, want %v", c.what, size, due, err, c.want)
			}
		}
	}
}

// What a caller of HTTP/2 writes is the beginning of a connection, requests that a server reads as
// they were meant, and acknowledgements.
func TestRequestsOfHTTP2(t *testing.T) {
	w := &wire{}
	caller, err := newHTTP2Caller(w, 2, make([]byte, 100))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := caller.send(0); err != nil {
			t.Fatal(err)
		}
	}
	server := newHTTP2Server()
	server.WriteSettings()
	server.WritePing(false, [8]byte{1})
	w.pieces = [][]byte{server.out.Bytes()}
	if _, err := receiveAll(caller); err != nil {
		t.Fatal(err)
	}
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(&w.out, preface); err != nil || string(preface) != http2.ClientPreface {
		t.Fatalf("the connection begins with %q, %v", preface, err)
	}
	frames := http2.NewFramer(nil, &w.out)
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var got []string
	for {
		f, err := frames.ReadFrame()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text := f.Header().Type.String()
		if h, ok := f.(*http2.MetaHeadersFrame); ok {
			for _, name := range []string{"method", "scheme", "authority", "path"} {
				text += " " + h.PseudoValue(name)
			}
			if !h.StreamEnded() {
				text += " and more"
			}
		}
		got = append(got, text)
	}
	ask := "HEADERS GET https api.example.com " + smallPath
	if want := []string{"SETTINGS", "WINDOW_UPDATE", ask, ask, "SETTINGS", "PING"}; !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}

func TestARingKeepsTheOrder(t *testing.T) {
	r := newRing[int](3)
	var got []int
	next := 0
	for range 5 { // its end passes its beginning
		for r.len() < 3 {
			r.push(next)
			next++
		}
		got = append(got, r.pop(), r.pop())
	}
	if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}; !slices.Equal(got, want) || r.len() != 1 {
		t.Errorf("popped %v and %d are left", got, r.len())
	}
}
