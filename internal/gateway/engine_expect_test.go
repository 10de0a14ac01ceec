package gateway

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// A client is answered before its body has arrived, and then sends nothing. Its
// connection is closed after a timeout: before and after it is asked for the body,
// in the middle of the body, and if the answer breaks off.
func TestAnAnsweredClientThatSendsNothingIsClosed(t *testing.T) {
	const final = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno"
	const expects = "POST /v1/wp/status HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
	for _, framing := range []struct{ name, fields, begin string }{
		{"length", "Content-Length: 20000\r\n\r\n", "b"},
		{"a long length", "Content-Length: 1000000\r\n\r\n", "b"},
		{"chunks", "Transfer-Encoding: chunked\r\n\r\n", "1\r\nb\r\n"},
	} {
		for _, c := range []struct {
			name, request string
			wantsBody     bool // the upstream asks for the body
			answer        string
		}{
			{"expects", expects, false, final},
			{"expects, the upstream closes", expects, false, "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"},
			{"was asked", expects, true, final},
			{"was asked, an answer without end", expects, true, "HTTP/1.1 413 Content Too Large\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
			{"was asked, half an answer", expects, true, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\n\r\nno"},
			{"sends, and closes", "POST /v1/wp/status HTTP/1.1\r\nHost: h\r\nConnection: close\r\n", false, final},
			{"sends", "POST /v1/wp/status HTTP/1.1\r\nHost: h\r\n", false, final},
		} {
			t.Run(c.name+", "+framing.name, func(t *testing.T) {
				t.Parallel()
				begun := make(chan bool, 1)
				o := newOrigin(t, func(s *served) {
					r := s.request()
					if r == nil {
						return
					}
					switch {
					case c.wantsBody:
						s.answers("HTTP/1.1 100 Continue\r\n\r\n")
						<-begun
					case r.Header.Get("Expect") == "":
						// The gateway waits for the next byte, or is about to.
						_, _ = r.Body.Read(make([]byte, 1))
					}
					if s.answers("%s", c.answer); c.answer == final {
						_, _ = io.Copy(io.Discard, s.Conn)
					}
				})
				e := open(t, nil, func(options *Options) { o.use(options); options.Limits.Stall = 100 * time.Millisecond })
				client := e.caller()
				fmt.Fprint(client.Conn, c.request+framing.fields)
				if c.wantsBody {
					if status, _ := client.head(); status != "100 Continue" {
						t.Errorf("%q, want 100", status)
					}
					begun <- true
				} else if c.request != expects {
					fmt.Fprint(client.Conn, framing.begin)
				}
				// Far longer than the gateway needs, but finite.
				if answer, err := io.ReadAll(client); pace.IsTimeout(err) {
					t.Errorf("the connection is open after %q, want its end", answer)
				} else if !strings.Contains(string(answer), "HTTP/1.1 413 ") && !strings.Contains(c.name, "half") {
					t.Errorf("%q and %v, want the answer", answer, err)
				}
				eventually(t, "nothing is in flight", func() bool { return e.gateway.InFlight() == 0 && e.gateway.rules.Open.Load() == 0 })
			})
		}
	}
}
