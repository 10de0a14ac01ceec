package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// A drain finishes every request, in each phase: half a head, half a body, an
// answer that has not begun or is half sent, and HTTP/2. Idle connections are
// closed at once. The drain does not wait for websockets.
func TestADrainFindsEveryPhase(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	arrived, proceed := make(chan bool, 8), make(chan bool)
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			switch r.URL.Path {
			case "/v1/wp/socket":
				s.answers(switching)
				_, _ = io.Copy(io.Discard, s)
				return
			case "/v1/wp/wait":
				arrived <- true
				<-proceed
			case "/v1/wp/half":
				s.answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
				<-proceed
				s.answers("4\r\nhalf\r\n0\r\n\r\n")
				continue
			case "/v1/wp/body":
				arrived <- true
			}
			_, _ = io.Copy(io.Discard, r.Body)
			s.answers(ok200)
		}
	})
	e := open(t, nil, o.use)
	idle, halfHead, halfBody, waits, halfAnswer, socket := e.caller(), e.caller(), e.caller(), e.caller(), e.caller(), e.caller()
	idle.request("GET /v1/wp/x")
	idle.readAnswer("GET")
	fresh := e.caller()
	// In one segment, so that the half head is read with the first request.
	halfHead.write("GET /v1/wp/x HTTP/1.1\r\nHost: h\r\n\r\nGET /v1/wp/x HTTP/1.1\r\nHos")
	halfHead.readAnswer("GET")
	halfBody.request("POST /v1/wp/body", "Content-Length: 100000")
	halfBody.write("half")
	<-arrived
	waits.request("GET /v1/wp/wait")
	<-arrived
	halfAnswer.request("GET /v1/wp/half")
	halfAnswer.head()
	halfAnswer.reads("4\r\nhalf\r\n")
	socket.request("GET /v1/wp/socket", "Connection: Upgrade", "Upgrade: websocket")
	socket.head()
	over2 := make(chan string, 1)
	client := h2c(t)
	go func() {
		res, err := client.Get(e.url("/v1/wp/wait"))
		if err != nil {
			over2 <- err.Error()
			return
		}
		body, _ := io.ReadAll(res.Body)
		over2 <- string(body)
	}()
	<-arrived

	eventually(t, "all are accepted", func() bool { return e.gateway.Accepted() == 8 })
	stopped := make(chan bool)
	go func() { e.stop(); close(stopped) }()
	idle.ends()
	if e.gateway.Fast() { // net/http takes both of these for idle connections
		fresh.request("GET /v1/wp/x") // it was opened for this
		if res, body := fresh.readAnswer("GET"); body != "ok" || !res.Close {
			t.Errorf("a connection without a byte: %q, close %v", body, res.Close)
		}
		halfHead.write("t: h\r\n\r\n")
		if res, body := halfHead.readAnswer("GET"); body != "ok" || !res.Close {
			t.Errorf("half a head: %q, close %v", body, res.Close)
		}
		halfHead.ends()
	}
	halfBody.write("%s", strings.Repeat("x", 100000-4))
	if res, body := halfBody.readAnswer("POST"); body != "ok" || !res.Close {
		t.Errorf("half a body: %q, close %v", body, res.Close)
	}
	select {
	case <-stopped:
		t.Fatal("it did not wait for the requests in flight")
	default:
	}
	close(proceed)
	if res, body := waits.readAnswer("GET"); body != "ok" || !res.Close {
		t.Errorf("no answer yet: %q, close %v", body, res.Close)
	}
	halfAnswer.reads("4\r\nhalf\r\n0\r\n\r\n")
	halfAnswer.ends()
	if body := <-over2; body != "ok" {
		t.Errorf("HTTP/2: %q", body)
	}
	socket.ends()
	<-stopped
	if err := <-e.result; err != nil {
		t.Errorf("Serve returned %v", err)
	}
	if log := e.log.String(); log != "" {
		t.Errorf("log %q", log)
	}
	if n := strings.Count(e.access.String(), "\n"); n != strings.Count(e.access.String(), "status=200")+strings.Count(e.access.String(), "status=101") {
		t.Errorf("access log %q", e.access.String())
	}
}

// HTTP/2 with prior knowledge is detected by its first bytes, in any segments.
// Similar but invalid bytes are rejected.
func TestHTTP2IsServedOnTheSamePort(t *testing.T) {
	o := answering(t, ok200)
	e := open(t, nil, o.use)
	c := e.caller()
	for i := range http2.ClientPreface {
		c.write("%s", http2.ClientPreface[i:i+1])
	}
	f := http2.NewFramer(c.Conn, c)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if frame, err := f.ReadFrame(); err != nil || frame.Header().Type != http2.FrameSettings {
		t.Errorf("%v, %v; want the server's settings", frame, err)
	}
	for _, begin := range []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\rx", "PRI * HTTP/2.0\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "PRI / HTTP/1.1\r\nHost: h\r\n\r\n", "PRIX"} {
		c := e.caller()
		c.write("%s", begin)
		if begin == "PRIX" {
			c.write(" / HTTP/1.1\r\nHost: h\r\n\r\n")
		}
		if status, _ := c.head(); !strings.HasPrefix(status, "4") && !strings.HasPrefix(status, "505") {
			t.Errorf("%q: %s", begin, status)
		}
	}
	if n := o.requests.Load(); n != 0 {
		t.Errorf("the upstream saw %d requests", n)
	}
	// HTTP/1.1 and HTTP/2 still work at the same time.
	if res, err := h2c(t).Get(e.url("/v1/wp/x")); err != nil || res.ProtoMajor != 2 || text(t, res) != "ok" {
		t.Errorf("%v, %v", res, err)
	}
	want(t, e.ask("GET /v1/wp/x"), http.StatusOK, "", wpPlugin)
}

// A client that speaks TLS to a port without it gets an error at once, whole or byte by byte.
func TestATLSClientGetsAnErrorWithoutTLS(t *testing.T) {
	e := open(t, nil, answering(t, ok200).use)
	sizes := []int{1 << 20}
	if e.gateway.Fast() {
		sizes = append(sizes, 1) // net/http resets connections on which more follows its answer
	}
	for _, piece := range sizes {
		c := &pieces{Conn: e.caller().Conn, size: piece}
		if err := tls.Client(c, &tls.Config{ServerName: "weir.test"}).Handshake(); !errors.As(err, new(tls.RecordHeaderError)) {
			t.Errorf("in pieces of %d: %v, want a record that is none", piece, err)
		}
		if answer := c.received.String(); !strings.HasPrefix(answer, "HTTP/1.1 400 Bad Request\r\n") {
			t.Errorf("in pieces of %d: the answer is %q", piece, answer)
		}
	}
	want(t, e.ask("GET /v1/wp/x"), http.StatusOK, "", wpPlugin)
}

// A pieces sends what is written in pieces, and keeps what it reads.
type pieces struct {
	net.Conn
	size     int
	received bytes.Buffer
}

func (c *pieces) Read(p []byte) (int, error) { return io.TeeReader(c.Conn, &c.received).Read(p) }

func (c *pieces) Write(p []byte) (int, error) {
	for piece := range slices.Chunk(p, c.size) {
		if _, err := c.Conn.Write(piece); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// A TLS port serves both protocols by ALPN, before an upstream, too. Clients
// without TLS get an error.
func TestATLSPortSpeaksBothBeforeAnUpstream(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			body, _ := io.ReadAll(r.Body)
			s.answers("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body)+len(r.Header.Get("X-Forwarded-Proto")), r.Header.Get("X-Forwarded-Proto")+string(body))
		}
	})
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	roots := certificateFiles(t, cert, key)
	e := open(t, nil, func(options *Options) { o.use(options); options.Certificates = []KeyPair{{cert, key}} })
	for _, major := range []int{1, 2} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: major == 2}}
		defer client.CloseIdleConnections()
		for _, length := range []int{0, 10, 100000} {
			res, err := client.Post("https://"+e.addr+"/v1/wp/x", "text/plain", strings.NewReader(strings.Repeat("x", length)))
			if err != nil {
				t.Fatal(err)
			}
			if body := text(t, res); res.ProtoMajor != major || len(body) != length+len("https") || !strings.HasPrefix(body, "https") {
				t.Errorf("HTTP/%d: %d bytes, %.20q by HTTP/%d", major, len(body), body, res.ProtoMajor)
			}
		}
	}
	c := e.caller()
	c.request("GET /v1/wp/x")
	if b, _ := io.ReadAll(c); !strings.HasPrefix(string(b), "HTTP/1.0 400 ") {
		t.Errorf("without TLS: %q", b)
	}
}
