package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// uploadOf returns a chunked body.
func uploadOf(chunks int) string {
	return strings.Repeat("4\r\nbody\r\n", chunks) + "0\r\n\r\n"
}

// An upstream may fail at any byte of an upload, including the last. Each client is
// answered, or its connection ends. No request or connection is left on either
// side, and a drain does not wait.
func TestAnUpstreamFailsAtEveryByteOfAnUpload(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	const rounds, clients = 3, 4
	body := uploadOf(6)
	o := newOrigin(t, func(s *served) {
		r := s.request()
		if r == nil {
			return
		}
		var after int64
		_, _ = fmt.Sscan(r.Header.Get("X-After"), &after)
		var read []byte
		for b, err := s.ReadByte(); err == nil && int64(len(read)) < after; b, err = s.ReadByte() {
			if read = append(read, b); bytes.HasSuffix(read, []byte("0\r\n\r\n")) {
				break // the gateway may send fewer chunks than it received
			}
		}
		switch r.Header.Get("X-How") {
		case "resets":
			_ = s.Conn.(*net.TCPConn).SetLinger(0)
		case "answers":
			s.answers(ok200)
		}
	})
	e := open(t, nil, func(options *Options) { o.use(options); options.Limits.Drain = time.Minute })
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for round := range rounds {
				for after := 0; after <= len(body); after++ {
					how := [...]string{"resets", "ends", "answers"}[(round+client)%3]
					if !uploads(t, e, body, after, how) {
						return
					}
				}
			}
		})
	}
	all.Wait()
	eventually(t, "nothing is in flight", func() bool {
		return e.gateway.InFlight() == 0 && e.gateway.rules.Open.Load() == 0 && o.open.Load() == 0
	})
	for _, a := range e.gateway.rules.Sites[0].Pool.States() {
		if a.Busy != 0 {
			t.Errorf("%d requests are in flight at %v", a.Busy, a.Address)
		}
	}
	stopped := make(chan bool)
	go func() { e.stop(); close(stopped) }()
	within(t, patience, "the drain ends", stopped)
	if log := e.log.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "did not finish in time") {
		t.Errorf("log %q", log)
	}
}

// uploads sends one upload, on a new connection, to an upstream that fails after so
// many bytes. It reports whether the connection ended.
func uploads(t *testing.T, e *edge, body string, after int, how string) bool {
	c, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Error(err)
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = fmt.Fprintf(c, "POST /v1/wp/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-After: %d\r\nX-How: %s\r\nTransfer-Encoding: chunked\r\n\r\n%s", after, how, body)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
	}
	if pace.IsTimeout(err) {
		t.Errorf("an upstream that %s after %d of %d bytes: no answer, and the connection is open", how, after, len(body))
		return false
	}
	return true
}
