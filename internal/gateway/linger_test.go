package gateway

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// silent is a backend that writes nothing: the server sends 200 by itself.
var silent = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// Until all clients have gone, or a timeout has passed, a kept connection serves
// its next request. The answer has Connection: close.
func TestAKeptConnectionIsAnnouncedToCloseDuringADrain(t *testing.T) {
	for _, name := range []string{"cleartext", "TLS"} {
		t.Run(name, func(t *testing.T) {
			var dialer tls.Config
			e := open(t, silent, func(o *Options) {
				o.Limits.Linger = time.Hour // not reached
				if name == "TLS" {
					dialer.RootCAs = secured(t, o)
					dialer.ServerName = "127.0.0.1"
				}
			})
			var readers []*bufio.Reader
			var conns []net.Conn
			for range 3 {
				c := e.dial()
				if name == "TLS" {
					c = tls.Client(c, &dialer)
				}
				conns, readers = append(conns, c), append(readers, bufio.NewReader(c))
			}
			ask := func(i int, path string) *http.Response {
				t.Helper()
				fmt.Fprintf(conns[i], "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
				res, err := http.ReadResponse(readers[i], nil)
				if err != nil {
					t.Fatal(err)
				}
				_ = text(t, res)
				return res
			}
			for i := range conns {
				if ask(i, "/v1/wp/status").Close {
					t.Fatal("a connection is closed before there is a drain")
				}
			}
			stopped := make(chan bool)
			go func() { e.stop(); close(stopped) }()
			eventually(t, "it announces the end of connections", e.gateway.rules.Lingering.Load)
			if c, err := net.Dial("tcp", e.addr); err == nil {
				c.Close()
				t.Error("it still accepts connections")
			}
			for i, path := range []string{"/v1/wp/status", "/healthz", "/not/%2fcanonical"} {
				if !ask(i, path).Close {
					t.Errorf("%s: the answer has no Connection: close", path)
				}
				if _, err := readers[i].ReadByte(); err != io.EOF {
					t.Errorf("%s: after it the connection gives %v", path, err)
				}
			}
			<-stopped // takes an hour if it does not notice that all have gone
		})
	}
}

func TestAnHTTP2ClientGetsGOAWAY(t *testing.T) {
	e := open(t, silent, func(o *Options) { o.Limits.Linger = time.Hour })
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer client.CloseIdleConnections()
	ask := func() {
		t.Helper()
		res, err := client.Get(e.url("/v1/wp/status"))
		if err != nil {
			t.Fatal(err)
		}
		if _ = text(t, res); res.ProtoMajor != 2 || res.StatusCode != http.StatusOK {
			t.Fatalf("%s %d", res.Proto, res.StatusCode)
		}
	}
	ask()
	stopped := make(chan bool)
	go func() { e.stop(); close(stopped) }()
	eventually(t, "it announces the end of connections", e.gateway.rules.Lingering.Load)
	ask() // on the existing connection: a new one is refused
	<-stopped
	if n := e.gateway.Accepted(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestASilentConnectionIsClosedAfterTheLinger(t *testing.T) {
	e := open(t, silent, func(o *Options) { o.Limits.Linger = 20 * time.Millisecond })
	c := e.dial()
	r := bufio.NewReader(c)
	fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = text(t, res)
	e.stop()
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("%v, want its end", err)
	}
	// The client sees its end a moment earlier.
	eventually(t, "no connection is left", func() bool { return e.gateway.rules.Open.Load() == 0 })
}
