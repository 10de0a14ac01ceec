package watch_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/watch"
)

func TestARefusalIsReportedAsItWas(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	desk := newDesk(t, c.now, weir.Limiter{Name: "ask", Windows: []weir.Window{window(t, 1, "minute", "token or ip")}})
	for range 2 {
		e := desk.of("ask", keys{"token": "abcdefgh27"}, 0)
		if e.Outcome == answer.Refused {
			e.Denial = "d1"
		}
		r.Observe(e)
	}
	refusals := r.Snapshot(watch.Query{}).Refusals
	got, err := json.Marshal(refusals)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"list":[{"number":1,"at":%d,"limiter":"ask","kind":"token","name":"abcdefgh27","hash":%q,`+
		`"standing":{"window":"1 per minute by token or ip","limit":1,"count":1,"remaining":0,"reset":%d},"denial":"d1"}],"next":1,"not_shown":0}`,
		c.seconds.Load(), refusals.List[0].Hash, c.seconds.Load()+60)
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAFloodOfRefusalsIsShownInPart(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	desk := newDesk(t, c.now, byIP(t, "ask", 1))
	r.Observe(desk.event("ask", "192.0.2.1"))
	e := desk.event("ask", "192.0.2.1")
	refuse := func(n int) {
		e.Decision.Now = c.seconds.Load()
		for range n {
			r.Observe(e)
		}
	}
	reports := func(after uint64, first uint64, n int, next, hidden uint64) {
		t.Helper()
		s := r.Snapshot(watch.Query{After: after}).Refusals
		if len(s.List) != n || n > 0 && s.List[0].Number != first || s.Next != next || s.NotShown != hidden {
			t.Errorf("after %d: %d from %v, next %d, %d not shown; not %d from %d, next %d, %d not shown", after, len(s.List), s.List[:min(1, len(s.List))],
				s.Next, s.NotShown, n, first, next, hidden)
		}
	}
	reports(0, 0, 0, 0, 0)
	refuse(10)
	reports(0, 1, 10, 10, 0)
	reports(7, 8, 3, 10, 0)
	reports(10, 0, 0, 10, 0)
	reports(99, 1, 10, 10, 0) // a page that was open before a restart
	refuse(5000)
	reports(10, 745, 256, 1000, 4010)
	c.move(time.Second)
	refuse(100)
	reports(1000, 1001, 100, 1100, 4010)
	refuse(1000)
	reports(2000, 0, 0, 2000, 4110)
	e.Decision.Now -= 3600 // the clock was set back
	r.Observe(e)
	reports(2000, 2001, 1, 2001, 4110)
}

// TestAPageThatFollowsMissesNothing reads refusals while they are written, each once and in order.
func TestAPageThatFollowsMissesNothing(t *testing.T) {
	const workers, each = 4, 60 // at most as many as are kept, so that none is overwritten
	c := newClock()
	r := newRecorder(t, c.now)
	var wg sync.WaitGroup
	for range workers {
		desk := newDesk(t, c.now, byIP(t, "ask", 1))
		desk.event("ask", "192.0.2.1")
		wg.Go(func() {
			for range each {
				r.Observe(desk.event("ask", "192.0.2.1"))
			}
		})
	}
	var next uint64
	for next < workers*each {
		s := r.Snapshot(watch.Query{After: next, Seconds: -1, Top: -1}).Refusals
		for _, v := range s.List {
			if v.Number != next+1 {
				t.Fatalf("after refusal %d comes %d", next, v.Number)
			}
			next = v.Number
		}
		if s.Next != next {
			t.Fatalf("go on from %d, after refusal %d", s.Next, next)
		}
	}
	wg.Wait()
}
