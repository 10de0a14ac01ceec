package gateway

import (
	"bytes"
	"crypto/tls"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// An idler is a client's connection that is used now and then.
type idler struct {
	asks func() bool // sends a request, and reports whether it is served
	ends func()      // expects the end of the connection
}

// idlers are the kinds of connections that a gateway with a certificate, or without, may have.
func idlers() map[string]func(e *edge, config *tls.Config) idler {
	return map[string]func(e *edge, config *tls.Config) idler{
		"HTTP/1.1": func(e *edge, config *tls.Config) idler {
			c := e.caller()
			if config != nil {
				secure := tls.Client(c.Conn, config)
				c.Conn = secure
				c.Reader.Reset(secure)
			}
			return idler{func() bool {
				c.request("GET /v1/wp/status")
				res, _ := c.readAnswer("GET")
				return res.StatusCode == http.StatusOK
			}, c.ends}
		},
		"HTTP/2": func(e *edge, config *tls.Config) idler {
			c := e.mustFrames(config)
			id := uint32(0)
			return idler{func() bool {
				id += 2
				c.get(id-1, "/v1/wp/status")
				return c.answered(id-1).outcome() == "200"
			}, func() {
				for c.next() {
				}
				if pace.IsTimeout(c.ended) {
					e.t.Errorf("the connection is open, want its end")
				}
			}}
		},
	}
}

// goroutinesOfConnections counts the goroutines that serve clients' connections.
func goroutinesOfConnections() int {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("/gateway/rules.(*Rules).ServePart("))
}

// A connection that waits long for a request holds no goroutine. It serves the next one, more than
// once, and ends with its time or a drain, as one that a goroutine waits for.
func TestAnIdleConnectionHoldsNoGoroutine(t *testing.T) {
	if testEngine == EngineStd {
		return // net/http's connections have one each
	}
	for name, connect := range idlers() {
		for _, secure := range []bool{false, true} {
			for _, end := range []string{"a drain", "its time"} {
				t.Run(name+", "+map[bool]string{true: "TLS, ", false: ""}[secure]+end, func(t *testing.T) {
					var config *tls.Config
					origin := answering(t, ok200)
					e := open(t, nil, func(o *Options) {
						origin.use(o)
						if secure {
							config = &tls.Config{RootCAs: secured(t, o), ServerName: "127.0.0.1"}
						}
						if end == "its time" {
							o.Limits.Idle = time.Second
						}
					})
					var all []idler
					for range 10 {
						all = append(all, connect(e, config))
					}
					rounds := 3
					if end == "its time" {
						rounds = 1
					}
					for range rounds {
						for _, c := range all {
							if !c.asks() {
								t.Error("a request is not served")
							}
						}
						eventually(t, "no goroutine waits for an idle connection", func() bool { return goroutinesOfConnections() == 0 })
					}
					if n := e.gateway.rules.Open.Load(); n != int64(len(all)) && end == "a drain" {
						t.Errorf("%d connections are open, want %d", n, len(all))
					}
					if end == "a drain" {
						e.stop()
					}
					for _, c := range all {
						c.ends()
					}
					eventually(t, "their end is counted", func() bool { return e.gateway.rules.Open.Load() == 0 })
				})
			}
		}
	}
}

// A connection that was opened and has sent nothing holds no goroutine, and is served when it does.
func TestANewConnectionHoldsNoGoroutine(t *testing.T) {
	if testEngine == EngineStd {
		return
	}
	e := open(t, nil, answering(t, ok200).use)
	c := e.caller()
	eventually(t, "it is accepted", func() bool { return e.gateway.rules.Open.Load() == 1 })
	eventually(t, "no goroutine waits for it", func() bool { return goroutinesOfConnections() == 0 })
	c.write("GET /v1/wp/status HTTP/1.1\r\nHost: h\r\nX-")
	eventually(t, "a goroutine reads a head that has begun", func() bool { return goroutinesOfConnections() == 1 })
	c.write("Y: z\r\n\r\n")
	if res, _ := c.readAnswer("GET"); res.StatusCode != http.StatusOK {
		t.Errorf("%s", res.Status)
	}
	eventually(t, "no goroutine waits for the next request", func() bool { return goroutinesOfConnections() == 0 })
	c.write("G")
	eventually(t, "a goroutine reads it", func() bool { return goroutinesOfConnections() == 1 })
	c.write("ET /v1/wp/status HTTP/1.1\r\nHost: h\r\n\r\n")
	if res, _ := c.readAnswer("GET"); res.StatusCode != http.StatusOK {
		t.Errorf("%s", res.Status)
	}
}
