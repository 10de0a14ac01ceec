package gateway

import (
	"testing"

	"golang.org/x/net/http2"
)

// A drain names the last stream that it serves. All up to it are answered; a later one was neither
// counted nor passed on, so that its client may send it again.
func TestAnHTTP2DrainAnswersWhatItHasAccepted(t *testing.T) {
	for _, body := range []bool{false, true} {
		e, b, counted := attacked(t, nil)
		c := e.mustFrames(nil)
		c.gate, c.release = b.gate()
		defer c.release()
		const early = 50
		send := func(id uint32) {
			if !body {
				c.hold(id)
				return
			}
			c.post(id, "/v1/wp/hold", "x-gate: "+c.gate)
			c.data(id, true, "body")
		}
		for i := range uint32(early) {
			send(2*i + 1)
		}
		eventually(t, "they have reached the upstream", func() bool { return b.under.Load() == early })
		stopped := make(chan bool)
		go func() { e.stop(); close(stopped) }()
		// The client goes on until it has read the GOAWAY that is not a first warning.
		const warning = 1<<31 - 1
		id := uint32(2*early + 1)
		for ; c.goAway == nil || c.goAway.LastStreamID == warning; id += 2 {
			if id < 2*120 { // no more than may be open
				send(id)
			}
			if !c.settled() {
				break
			}
		}
		if c.goAway == nil || c.goAway.ErrCode != http2.ErrCodeNo {
			t.Fatalf("the drain begins with %v (%v)", c.goAway, c.ended)
		}
		c.release()
		for c.next() {
		}
		last, answered := c.goAway.LastStreamID, int64(0)
		for id := uint32(1); id < 2*120; id += 2 {
			s := c.stream(id)
			switch {
			case s.outcome() == "200":
				answered++
			case id <= last && (id <= 2*early || s.status != "" || !s.reset || s.code != http2.ErrCodeRefusedStream):
				// A stream that was sent in time may be refused, but must say so.
				t.Errorf("body %v: stream %d, with the last at %d: %q", body, id, last, s.outcome())
			}
			if id > last && s.status != "" {
				t.Errorf("body %v: stream %d is answered, though the last one is %d", body, id, last)
			}
		}
		if reached := b.reached.Load(); reached != answered || counted.Load() != answered {
			t.Errorf("body %v: %d requests are answered, %d have reached the upstream, %d were counted", body, answered, reached, counted.Load())
		}
		<-stopped
		if !isEnd(c.ended) {
			t.Errorf("body %v: the connection ends with %v", body, c.ended)
		}
	}
}
