package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/poller"
)

// After a read the poller's word is enough for a moment. What the answer left in the socket,
// because it filled the buffer, is no news to the poller, and must be found all the same.
func TestAskFindsWhatAnAnswerLeftInTheSocket(t *testing.T) {
	for name, left := range map[string]string{"nothing": "", "the next answer": "HTTP/1.1 200 OK\r\n\r\n"} {
		for _, fills := range []bool{true, false} {
			if !fills && left != "" {
				continue // it would be read with the answer
			}
			t.Run(name, func(t *testing.T) {
				l := listen(t, nil)
				o := options(Address{Host: l.Addr().String()})
				o.Dial = poller.Dial(new(net.Dialer))
				p := open(t, o)
				answer := "short"
				if fills {
					answer = strings.Repeat("a", 64) // what asked makes room for
				}
				c := takeToAsk(t, p)
				far := <-l.accepted
				defer far.Close()
				answered := make(chan error, 1)
				go func() {
					_, err := io.ReadFull(far, make([]byte, len("request")))
					_, errWrite := io.WriteString(far, answer+left)
					answered <- errors.Join(err, errWrite)
				}()
				got, err := asked(c, "request")
				if err := errors.Join(err, <-answered); err != nil || got != answer {
					t.Fatalf("%d bytes of %d, %v", len(got), len(answer), err)
				}
				// Each new connection makes a poller look. (If the answer was read before it was
				// reported, it is news all the same.)
				for i := 0; i < 50 && !c.socket.QuietSince(c.ask.mark); i++ {
					other, err := p.Take(context.Background(), Want{Fresh: true})
					if err != nil {
						t.Fatal(err)
					}
					other.Drop(nil)
					(<-l.accepted).Close()
				}
				if c.ask.whole == fills {
					t.Errorf("an answer of %d bytes took all that had come: %t", len(answer), c.ask.whole)
				}
				c.Keep(time.Now())
				again := takeToAsk(t, p)
				if again != c || !c.ask.fresh {
					t.Fatalf("another connection, or fresh: %t", c.ask.fresh)
				}
				go func() {
					if _, err := io.ReadFull(far, make([]byte, len("request"))); err == nil {
						_, _ = io.WriteString(far, "answer")
					}
				}()
				if got, err = asked(again, "request"); (left != "") != errors.Is(err, ErrStale) || left == "" && got != "answer" {
					t.Errorf("the next exchange: %q, %v", got, err)
				}
				again.Drop(nil)
			})
		}
	}
}
