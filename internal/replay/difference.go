package replay

import (
	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// changes are the differences of the second policy from the first.
type changes struct {
	refused  int64
	admitted int64
	unknown  int64
	by       map[*limiter]*Differences // of the second policy; nil: no limiter
	points   *points
	worst    worst
}

func newChanges(r *Replay) *changes {
	return &changes{by: make(map[*limiter]*Differences), points: r.timeline.newPoints(), worst: worst{size: r.options.Worst}}
}

// note compares the results of the present request, whose address is e.
func (c *changes) note(r *Replay, e *entry, hash uint64) {
	c.points.request(&r.timeline)
	if r.lanes[0].verdict == unknown || r.lanes[1].verdict == unknown {
		c.unknown++
		c.of(r.lanes[1].covers).Unknown++
		return
	}
	first, second := r.lanes[0].verdict == refused, r.lanes[1].verdict == refused
	if first == second {
		return
	}
	d := c.of(r.lanes[1].covers)
	if first {
		c.admitted++
		d.NewlyAdmitted++
		return
	}
	c.refused++
	d.NewlyRefused++
	c.points.refuse(&r.timeline)
	if e.refused == 0 {
		e.first = r.second
	}
	e.refused = plus(e.refused, 1)
	c.worst.note(&r.addresses, e, hash, 0, r.second, func(dst []byte) []byte {
		return r.namer.name(dst, weir.Key{{identity.IP}}, &r.caller)
	})
}

func (c *changes) of(s *limiter) *Differences {
	d := c.by[s]
	if d == nil {
		d = new(Differences)
		if s != nil {
			d.Name = s.rules.Name
		}
		c.by[s] = d
	}
	return d
}

func (c *changes) difference(r *Replay) *Difference {
	d := &Difference{
		NewlyRefused:  c.refused,
		NewlyAdmitted: c.admitted,
		Unknown:       c.unknown,
		NewlyTouched:  r.addresses.countOnly(touchedSecond, touched, touchedEither),
		Freed:         r.addresses.countOnly(touched, touchedSecond, touchedEither),
		Limiters:      []Differences{},
		Worst:         c.worst.callers(func(int) *callers { return &r.addresses }),
		Series:        c.points.series(&r.timeline),
	}
	d.Doubt.add(&r.addresses)
	for _, s := range append(r.lanes[1].ordered, nil) {
		if by := c.by[s]; by != nil {
			d.Limiters = append(d.Limiters, *by)
		}
	}
	return d
}
