package edge

import (
	"log/slog"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/internal/live"
)

// openSettled logs reservations that are too small, and units that could not be given back.
func openSettled(o *observing) error {
	l := &settledLog{log: o.Log}
	h := o.hooks
	h.settled = append(h.settled, l.settled)
	h.storeEvents = append(h.storeEvents, l.storeEvent)
	h.policies = append(h.policies, l.policyChanged)
	return nil
}

// A settledLog logs the first overrun of each limiter under a policy, and the first stranded units
// of an outage. The metrics have the rest. It is safe for concurrent use.
type settledLog struct {
	log *slog.Logger

	mu       sync.Mutex
	version  string          // of the policy in force
	overrun  map[string]bool // the limiters whose overrun is logged; nil: none
	stranded int64           // units since the last line about them
	noted    bool            // the outage has its first line
}

// settled is for weir.Options.OnSettled. Most settlements take no lock.
func (l *settledLog) settled(s weir.Settled) {
	if s.Shadow {
		return
	}
	if s.Lost > 0 {
		l.strand(s)
	} else if s.Used > s.Reserved {
		l.noteOverrun(s)
	}
}

func (l *settledLog) noteOverrun(s weir.Settled) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.overrun[s.Limiter.Name] {
		return
	}
	if l.overrun == nil {
		l.overrun = map[string]bool{}
	}
	l.overrun[s.Limiter.Name] = true
	l.log.Warn("a request has cost more than was reserved for it, so its caller may pass the limit: raise the reserve of the limiter's cost; weir_overrun_units_total counts the units, and this is logged once a limiter and policy",
		"limiter", s.Limiter.Name, "reserved", s.Reserved, "cost", s.Used)
}

func (l *settledLog) strand(s weir.Settled) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.noted {
		l.stranded += s.Lost
		return
	}
	l.noted = true
	l.log.Warn("the store may not have counted what a request turned out to cost; its windows stay as they were charged until they end, so callers may be refused early; weir_stranded_units_total counts the units, and this is logged once an outage",
		"limiter", s.Limiter.Name, "reserved", s.Reserved, "cost", s.Used)
}

// storeEvent is for failover.Options.OnEvent. The end of an outage sums up what it has stranded
// after the first line.
func (l *settledLog) storeEvent(e failover.Event) {
	if e.Failing {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stranded > 0 {
		l.log.Warn("more units stay as they were charged, because the store may not have counted what requests turned out to cost", "units", l.stranded)
	}
	l.noted, l.stranded = false, 0
}

// policyChanged begins anew for another policy: it may have another reserve.
func (l *settledLog) policyChanged(s live.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.Version != l.version {
		l.version, l.overrun = s.Version, nil
	}
}
