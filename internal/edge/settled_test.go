package edge

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/internal/live"
)

func newSettledLog() (*settledLog, func(text string) int) {
	log := new(bytes.Buffer)
	l := &settledLog{log: slog.New(slog.NewTextHandler(log, nil))}
	return l, func(text string) int { return strings.Count(log.String(), text) }
}

func TestAnOverrunIsLoggedOnceALimiterAndPolicy(t *testing.T) {
	l, logged := newSettledLog()
	settle := func(name string, used int64) {
		l.settled(weir.Settled{Limiter: &weir.Limiter{Name: name}, Reserved: 100, Used: used})
	}
	l.policyChanged(live.State{Version: "one"})
	for range 3 {
		settle("llm", 130)
		settle("other", 131)
		settle("well", 100)
		l.settled(weir.Settled{Limiter: &weir.Limiter{Name: "tried"}, Reserved: 1, Used: 2, Shadow: true})
		l.policyChanged(live.State{Version: "one"}) // an attempt that changed nothing
	}
	if logged("\n") != 2 || logged("limiter=llm reserved=100 cost=130") != 1 || logged("limiter=other reserved=100 cost=131") != 1 {
		t.Errorf("%d lines", logged("\n"))
	}
	if logged("raise the reserve") != 2 {
		t.Error("the log does not say what to do")
	}
	l.policyChanged(live.State{Version: "two"})
	settle("llm", 130)
	if logged("limiter=llm") != 2 {
		t.Error("another policy is not watched anew")
	}
}

func TestStrandedUnitsAreLoggedOnceAnOutage(t *testing.T) {
	l, logged := newSettledLog()
	for outage := range 2 {
		for range 3 {
			l.settled(weir.Settled{Limiter: &weir.Limiter{Name: "llm"}, Reserved: 100, Used: 40, Lost: 60})
		}
		l.storeEvent(failover.Event{Failing: true})
		if n := logged("limiter=llm reserved=100 cost=40"); n != outage+1 {
			t.Errorf("%d lines in outage %d", n, outage)
		}
		l.storeEvent(failover.Event{})
		if n := logged("units=120"); n != outage+1 {
			t.Errorf("%d sums after outage %d", n, outage)
		}
	}
	l.storeEvent(failover.Event{}) // an outage that stranded nothing
	if logged("\n") != 4 {
		t.Errorf("%d lines, want 4", logged("\n"))
	}
}
