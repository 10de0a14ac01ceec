package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// socketBackend serves at a Unix socket. It answers with its name, the Host, the target and the
// body that it received.
func socketBackend(t *testing.T, path, name string) *http.Server {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %d", name, r.Host, r.RequestURI, len(body))
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return s
}

// socketAt returns the URL of a Unix socket.
func socketAt(path string) *url.URL { return &url.URL{Scheme: "unix", Path: path, OmitHost: true} }

func TestAnUpstreamMayBeAUnixSocket(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.sock"), filepath.Join(dir, "two.sock")
	socketBackend(t, one, "one")
	socketBackend(t, two, "two")
	e := open(t, nil, func(o *Options) {
		o.Sites = []Site{{Host: "api.example.com", Upstreams: []*url.URL{socketAt(one)}}, {Upstreams: []*url.URL{socketAt(two)}}}
	})
	c := e.caller()
	body := strings.Repeat("x", 1<<20)
	for range 3 { // on kept connections, of both sides
		for host, name := range map[string]string{"api.example.com": "one", "other.example.com": "two"} {
			_ = c.SetDeadline(time.Now().Add(patience))
			c.write("GET /v1/wp/a?b=c HTTP/1.1\r\nHost: %s\r\n\r\n", host)
			if res, got := c.readAnswer("GET"); got != name+" "+host+" /v1/wp/a?b=c 0" || limitOf(res.Header) != wpPlugin {
				t.Errorf("%d %q", res.StatusCode, got)
			}
			c.write("POST /v1/wp/a HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", host, len(body), body)
			if res, got := c.readAnswer("POST"); got != fmt.Sprintf("%s %s /v1/wp/a %d", name, host, len(body)) {
				t.Errorf("%d %q", res.StatusCode, got)
			}
		}
	}
	states := e.gateway.Upstreams()
	if len(states) != 2 || states[0].Address.String() != "unix:"+one || states[1].Address.String() != "unix:"+two {
		t.Errorf("states %+v", states)
	}
}

// A health check reaches a backend at its socket, so that /readyz and the metrics are true.
func TestASocketIsHealthChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.sock")
	s := socketBackend(t, path, "app")
	e := open(t, nil, func(o *Options) {
		o.Sites = To(socketAt(path))
		o.HealthCheck = HealthCheck{Path: "/up", Every: 50 * time.Millisecond, within: patience}
	})
	ready := func(want string) func() bool {
		return func() bool { return text(t, e.ask("GET /readyz")) == want }
	}
	eventually(t, "the check succeeds", ready("ok\n"))
	s.Close()
	eventually(t, "the check fails", ready("degraded: no address of any upstream passes its health check\n"))
	socketBackend(t, path, "app")
	eventually(t, "the check succeeds again", func() bool { return e.gateway.Upstreams()[0].Well && ready("ok\n")() })
}

// While a socket is gone, requests are answered 502; when it is back, they are served.
func TestASocketThatIsGoneIs502AndThenServedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.sock")
	e := open(t, nil, func(o *Options) { o.Sites = To(socketAt(path)) })
	for range 2 {
		want(t, e.ask("GET /v1/wp/status"), http.StatusBadGateway, "upstream_unavailable", wpPlugin)
		s := socketBackend(t, path, "app")
		for range 2 {
			if got := text(t, e.ask("GET /v1/wp/status")); got != "app weir.test /v1/wp/status 0" {
				t.Errorf("%q", got)
			}
		}
		s.Close()
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, e.ask("GET /v1/wp/status"), http.StatusBadGateway, "upstream_unavailable", wpPlugin)
	if log := e.log.String(); !strings.Contains(log, "unix:"+path) || strings.Contains(log, ".invalid") {
		t.Errorf("the log does not name the socket: %s", log)
	}
}

func TestAllAddressesOfASiteAreSocketsOrNone(t *testing.T) {
	for _, all := range [][]*url.URL{
		{socketAt("/a.sock"), {Scheme: "http", Host: "h"}}, {{Scheme: "http", Host: "h"}, socketAt("/a.sock")}, {socketAt("")},
		{socketAt("/a.sock"), socketAt("/a.sock")},
	} {
		g := Gateway{options: Options{Sites: To(all...), Limits: Limits{}.WithDefaults(true)}}
		if _, err := g.newSites(nil); err == nil {
			t.Errorf("%v is accepted", all)
		}
	}
}

// A websocket goes through a socket, and each side may end its half.
func TestAWebsocketGoesThroughASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	received := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		_, _ = io.WriteString(c, switching+"hello")
		b, _ := io.ReadAll(r) // until the client ends its half
		received <- string(b)
		_, _ = io.WriteString(c, " and goodbye")
	}()
	e := open(t, nil, func(o *Options) { o.Sites = To(socketAt(path)) })
	c := e.socket()
	c.reads("hello")
	c.write("from the client")
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := within(t, patience, "the client's half", received); got != "from the client" {
		t.Errorf("%q", got)
	}
	c.reads(" and goodbye")
	c.ends()
}
