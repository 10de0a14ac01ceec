package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// A client that connects and sends nothing, or breaks off during a TLS handshake,
// does not delay a drain of the fast engine. (net/http waits for five seconds.)
func TestADrainDoesNotWaitForSilentClients(t *testing.T) {
	if testEngine != EngineAuto {
		return
	}
	for name, begin := range map[string]string{"nothing": "", "half a handshake": "\x16\x03\x01\x02\x00\x01"} {
		t.Run(name, func(t *testing.T) {
			e := open(t, nil, func(o *Options) {
				behind(t, func(http.ResponseWriter, *http.Request) {})(o)
				secured(t, o)
				o.Limits.Drain = time.Minute
				o.Limits.Header = time.Hour
			})
			c := e.dial()
			if _, err := c.Write([]byte(begin)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a connection", func() bool { return e.gateway.Accepted() == 1 })
			began := time.Now()
			e.stop()
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("the drain took %v", took)
			}
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, c); pace.IsTimeout(err) {
				t.Error("the connection is still open")
			}
		})
	}
}

// A client that writes a whole large body before it reads still gets its refusal.
func TestTheRefusalOfALargeBodyArrives(t *testing.T) {
	if testEngine != EngineAuto {
		return
	}
	e := open(t, nil, behind(t, func(http.ResponseWriter, *http.Request) {}))
	c := e.dial()
	const size = 20 << 20
	if _, err := fmt.Fprintf(c, "POST /api/v1/widget/%%5c HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size); err != nil {
		t.Fatal(err)
	}
	if n, err := io.CopyN(c, zeros{}, size); err != nil {
		t.Fatalf("after %d bytes: %v", n, err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, res, http.StatusBadRequest, "invalid_request", other)
	if !res.Close {
		t.Error("the answer has no Connection: close")
	}
}
