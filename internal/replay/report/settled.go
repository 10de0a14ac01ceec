package report

import (
	"fmt"

	"github.com/weirlimit/weir/internal/replay"
)

// settledUnits reports whether a limiter has changed what requests spent, as far as the log shows.
func settledUnits(l *replay.Limiter) bool {
	return l.Settled != nil && l.Settled.Reserved+l.Settled.WouldReserve+l.Settled.GivenBack+l.Settled.Overrun > 0
}

// settled writes what became of reservations, for the limiters that have any.
func (t *table) settled(o *replay.Outcome) {
	g := &grid{left: "lrrrrr"}
	g.row("UNITS", "RESERVED", "REFUSED", "GIVEN BACK", "OVERRUN", "UNREPORTED")
	for i := range o.Limiters {
		l := &o.Limiters[i]
		t.settles = t.settles || l.Settled != nil && l.Requests > 0
		if s := l.Settled; settledUnits(l) {
			g.row(limiterName(l), thousands(s.Reserved), thousands(s.WouldReserve), thousands(s.GivenBack), thousands(s.Overrun), thousands(s.Unreported))
		}
	}
	t.grid(g)
}

// lacking returns what the log lacks to settle requests, a sentence each.
func lacking(o *replay.Outcome) (all []string) {
	for _, lack := range []struct {
		of   func(*replay.Settled) int64
		what string
		then string
	}{
		{func(s *replay.Settled) int64 { return s.Unreported }, "cost", "what was reserved stays charged; --cost FIELD names the field that has it"},
		{func(s *replay.Settled) int64 { return s.NoStatus }, "status", "each of them counts"},
		{func(s *replay.Settled) int64 { return s.NoDuration }, "duration", "they are in flight for no time, so no limit in flight refuses any"},
	} {
		n := int64(0)
		var names []string
		for i := range o.Limiters {
			if l := &o.Limiters[i]; l.Settled != nil && lack.of(l.Settled) > 0 {
				n += lack.of(l.Settled)
				names = append(names, l.Name)
			}
		}
		if n > 0 {
			all = append(all, fmt.Sprintf("no %s in the log for %s of %s: %s", lack.what, many(n, "request"), Names(names), lack.then))
		}
	}
	return all
}
