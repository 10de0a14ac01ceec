package wire_test

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// A script is a connection whose other side has said all that it will, and does not listen.
type script struct {
	io.Reader
	closed func()
}

func (s *script) Write(p []byte) (int, error)      { return len(p), nil }
func (s *script) Close() error                     { s.closed(); return nil }
func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// once listens for one connection.
type once struct{ conns chan net.Conn }

func (o once) Accept() (net.Conn, error) {
	if c, ok := <-o.conns; ok {
		return c, nil
	}
	return nil, io.EOF
}
func (o once) Close() error   { return nil }
func (o once) Addr() net.Addr { return &net.TCPAddr{} }

// servedByStandard reports whether net/http's server passes a stream's first request to its
// handler, and all of its body.
func servedByStandard(t *testing.T, stream string) (accepted bool) {
	t.Helper()
	first := true
	s := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		accepted = accepted || first && err == nil
		first = false
	})}
	o := once{make(chan net.Conn, 1)}
	closed := make(chan struct{})
	o.conns <- &script{strings.NewReader(stream), sync.OnceFunc(func() { close(closed) })}
	close(o.conns)
	if err := s.Serve(o); err != io.EOF {
		t.Fatal(err)
	}
	<-closed
	return accepted
}

// servedByFast is the same with fasthttp's.
func servedByFast(stream string) (accepted bool) {
	first := true
	s := &fasthttp.Server{Logger: log.New(io.Discard, "", 0), StreamRequestBody: true, ReadBufferSize: maxHead, Handler: func(c *fasthttp.RequestCtx) {
		var err error
		if body := c.RequestBodyStream(); body != nil {
			_, err = io.ReadAll(body)
		}
		accepted = accepted || first && err == nil
		first = false
	}}
	// Why the connection ended is not asked.
	_ = s.ServeConn(&script{strings.NewReader(stream), func() {}})
	return accepted
}

// refused are all streams whose first request is refused here, by what is wrong with it.
func refused() map[string]string {
	streams := map[string]string{}
	for _, c := range requestHeads {
		// Of what breaks off nobody knows yet.
		if _, err := ours(c.head); c.status != 0 && err != io.EOF {
			streams[c.what] = c.head + "hello"
		}
	}
	for _, c := range bodies {
		stream := head("Transfer-Encoding: chunked") + c.stream
		if c.status != 0 {
			// So that nobody refuses it for want of an end.
			streams["body: "+c.what] = stream + "0\r\n\r\n"
		} else if c.broken {
			streams["body: "+c.what] = stream
		}
	}
	for _, host := range badHosts {
		streams["Host: "+host] = "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	}
	delete(streams, "an empty line before the request line") // the Reader skips it
	streams["two empty lines before the request line"] = "\r\n\r\n" + head()
	streams["a line feed before the request line"] = "\n" + head()
	delete(streams, "bytes behind the head") // of a connection these are the next request
	return streams
}

// Why the engine has a reader of its own: what is refused here and reaches a handler with each
// library's server. A library that becomes stricter, or laxer, fails here.
func TestWhatTheLibrariesServeAndWeRefuse(t *testing.T) {
	for what, stream := range refused() {
		if _, err := ours(stream); err == nil || !errors.Is(err, io.ErrUnexpectedEOF) && statusOf(t, err) == 0 {
			t.Errorf("%s: %q is accepted", what, stream)
		}
		got := served{servedByFast(stream), servedByStandard(t, stream)}
		if want := laxer[what]; got != want {
			t.Errorf("%s: %q: served by %v, the table says %v", what, stream, got, want)
		}
	}
	for what := range laxer {
		if refused()[what] == "" {
			t.Errorf("%s is in the table, and no case", what)
		}
	}
}

// served says whose server passes a request on.
type served struct{ fasthttp, standard bool }

var (
	both         = served{true, true}
	fastOnly     = served{true, false}
	standardOnly = served{false, true}
)

// laxer are the cases that a library serves, fasthttp v1.68.0 and net/http of Go 1.26.
var laxer = map[string]served{
	"a line feed before the request line":             fastOnly,
	"two empty lines before the request line":         fastOnly,
	"a target with a fragment":                        both,
	"a target without a slash":                        fastOnly,
	"a target that begins with a question mark":       fastOnly,
	"absolute form":                                   both,
	"authority form":                                  both,
	"asterisk form of another method":                 both,
	"asterisk form of OPTIONS in lower case":          both,
	"asterisk and more":                               fastOnly,
	"HTTP/1.2":                                        both,
	"HTTP/0.9":                                        fastOnly,
	"HTTP/2.0":                                        fastOnly,
	"the preface of HTTP/2":                           both,
	"HTTP/1,1":                                        fastOnly,
	"bare line feeds":                                 standardOnly,
	"a bare line feed behind the request line":        both,
	"a bare line feed behind a field":                 standardOnly,
	"a bare line feed for the empty line":             standardOnly,
	"a line feed within a value":                      both,
	"obs-fold with a blank":                           both,
	"obs-fold with a tab":                             both,
	"a blank before the colon":                        fastOnly,
	"a blank within a name":                           fastOnly,
	"more fields than allowed":                        both,
	"no Host":                                         fastOnly,
	"two Hosts":                                       fastOnly,
	"two Hosts of HTTP/1.0":                           fastOnly,
	"a Content-Length with many zeros before it":      both,
	"two equal lengths":                               standardOnly,
	"Transfer-Encoding: identity":                     fastOnly,
	"chunked in HTTP/1.0":                             standardOnly,
	"an underscore for the dash of Transfer-Encoding": both,
	"an underscore for the dash of Content-Length":    both,
	"a dot for the dash of Content-Length":            both,
	"a blank before the colon of Transfer-Encoding":   fastOnly,
	"a connection option that is no token":            both,
	"a connection option in quotes":                   both,
	"more connection options than allowed":            both,
	"another expectation":                             fastOnly,
	"an expectation more":                             both,
	"body: nothing":                                   fastOnly,
	"body: 0x, with what could be the end behind it":  fastOnly,
	"body: a blank behind the size":                   both,
	"body: a blank before an extension":               fastOnly,
	"body: a tab behind the size":                     both,
	"body: NUL in an extension":                       both,
	"body: a size line longer than allowed":           both,
	"body: more extensions than allowed":              both,
	"body: an end without its empty line":             fastOnly,
	"body: an empty line that breaks off":             fastOnly,
	"body: an empty line of a bare LF":                both,
	"body: a trailer that breaks off":                 fastOnly,
	"body: a trailer that ends with a bare LF":        both,
	"body: a trailer with a blank before the colon":   both,
	"body: a folded trailer":                          both,
	"body: a trailer that is framing":                 standardOnly,
	"body: a trailer that is a credential":            standardOnly,
	"body: more trailers than allowed":                both,
	"body: longer trailers than allowed":              fastOnly,
	"body: trailers without an end":                   fastOnly,
	"body: a body without a last chunk":               fastOnly,
	"Host: :":                                         both,
	"Host: []":                                        standardOnly,
	"Host: é":                                         fastOnly,
	"Host: a,b":                                       both,
	"Host: a@b":                                       fastOnly,
	"Host: user:pass@h":                               fastOnly,
	"Host: h:x":                                       standardOnly,
	"Host: h:-1":                                      standardOnly,
	"Host: h:+80":                                     standardOnly,
	"Host: h:65536":                                   both,
	"Host: h:99999999999999999999":                    both,
	"Host: h:80:80":                                   standardOnly,
	"Host: :80":                                       both,
	"Host: [::1":                                      standardOnly,
	"Host: ::1":                                       standardOnly,
	"Host: [::1]x":                                    standardOnly,
	"Host: [::1]:x":                                   standardOnly,
	"Host: [1.2.3.4]":                                 standardOnly,
	"Host: [fe80::1%eth0]":                            standardOnly,
	"Host: [fe80::1%25eth0]":                          both,
	"Host: [v1.x]":                                    standardOnly,
	"Host: [::1]]":                                    both,
	"Host: a%":                                        standardOnly,
	"Host: a%2":                                       standardOnly,
	"Host: a%zz":                                      standardOnly,
	"Host: \"a\"":                                     fastOnly,
	"Host: a[b]":                                      standardOnly,
	"Host: <a>":                                       fastOnly,
}
