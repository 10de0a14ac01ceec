package weir

import (
	"fmt"
	"slices"
)

// A Crossed is a request that brought the count of a window to a percentage of Limiter.Notify.
type Crossed struct {
	// Standing is the window after the request. Its Count is the store's, so that of all processes
	// that count one caller in one store, one reports each percentage.
	Standing *Standing
	Percent  int64     // of the limit; 100 is the request that spends the last unit
	Decision *Decision // read only; that of the limiter in Shadow mode if Shadow is true
	Shadow   bool      // the limiter is in Shadow mode
	// Who is the caller as the window counts it (see Scratch.Who). It must not be shown.
	Who []byte
	// Keys are those of the request. They are nil if Shadow is true.
	Keys Keys
}

// reportCrossed calls Options.OnCrossed for each window whose count a request has brought to a
// percentage, in rising order of these. A caller that is exempt makes none, because no limit holds
// for it. The limit in flight makes none either: its count goes up and down with every request.
func (d *Decider) reportCrossed(s *Scratch, out *Decision, keys Keys) {
	if d.options.OnCrossed == nil || !out.Allowed || out.Exempt || out.Outcome == StoreUnavailable {
		return
	}
	standings := out.Standings()
	for i := range standings {
		w := &standings[i]
		cost := s.charges[w.charge].Cost
		if s.exempted[w.charge] || cost == 0 || w.InFlight {
			continue
		}
		for _, percent := range w.Limiter.Notify {
			if at := percent * w.Limit; 100*w.Count >= at && 100*(w.Count-cost) < at {
				s.live = *out // so that out does not escape to the heap
				of := &s.live.Standings()[i]
				d.options.OnCrossed(Crossed{
					Standing: of, Percent: percent, Decision: &s.live, Shadow: of.Limiter.Mode == Shadow, Who: s.Who(of), Keys: keys,
				})
			}
		}
	}
}

func (c *checker) checkNotify(l *Limiter) {
	if len(l.Notify) > MaxNotify {
		c.add("notify", -1, "", "%d percentages: at most %d are allowed", len(l.Notify), MaxNotify)
		return
	}
	for i, percent := range l.Notify {
		value := fmt.Sprint(percent)
		switch {
		case percent < 1 || percent > 100:
			c.add("notify", i, value, "notify %d is out of range: 1 to 100 percent is allowed", percent)
		case slices.Contains(l.Notify[:i], percent):
			c.add("notify", i, value, "notify %d occurs twice: remove one", percent)
		case i > 0 && percent < l.Notify[i-1]:
			c.add("notify", i, value, "notify %d follows %d: write percentages in rising order", percent, l.Notify[i-1])
		}
	}
}
