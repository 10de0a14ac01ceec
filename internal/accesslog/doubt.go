package accesslog

import (
	"fmt"
	"slices"
	"time"
)

// One stamp of the far future would stop the clock of whoever reads on, for it never goes back: so a time that is far ahead of all that
// stand before it in its file is believed only if most of the lines that follow are there, too.
const (
	farAhead  = int64(time.Hour)
	witnesses = 32 // lines that follow; fewer at the end of a file
)

// doubts are lines of one file that wait, in its order, until those are read that tell whether to believe the first of them.
type doubts struct {
	lines   []doubted
	settled int // how many of them have left
}

type doubted struct {
	record int32
	size   int
	text   [shown]byte // the line's beginning as it stands: a parser may have changed it
}

func (d *doubts) waiting() []doubted { return d.lines[d.settled:] }

// doubt takes a line that is far ahead, or stands after one that is doubted.
func (s *source) doubt(i int32, size int) {
	d := &s.doubts
	if d.settled > witnesses {
		d.lines, d.settled = slices.Delete(d.lines, 0, d.settled), 0
	}
	d.lines = append(d.lines, doubted{i, size, s.begin})
}

// settle takes or puts away the first line that is doubted. It reports whether enough is known for that: of a file that has ended, all.
func (s *source) settle() bool {
	waiting := s.doubts.waiting()
	if len(waiting) == 0 {
		return false
	}
	first, rest := &waiting[0], waiting[1:]
	by := int64(0)
	if at := s.order.at(first.record).Time; at-farAhead > s.latest {
		if len(rest) < witnesses && !s.ended {
			return false
		}
		by = s.alone(at, rest)
	}
	if by > 0 {
		s.disbelieve(first, by)
	} else {
		s.take(first.record)
	}
	if s.doubts.settled++; len(rest) == 0 {
		s.doubts = doubts{lines: s.doubts.lines[:0]}
	}
	return true
}

// alone returns by how much a time is ahead of the lines around it if at least half of those that follow are not there; else 0.
func (s *source) alone(at int64, rest []doubted) (by int64) {
	back, near := 0, s.latest
	for i := range rest {
		if other := s.order.at(rest[i].record).Time; other < at-farAhead {
			back++
			near = max(near, other)
		}
	}
	if back == 0 || 2*back < len(rest) {
		return 0
	}
	return at - near
}

// disbelieve puts a line away as malformed.
func (s *source) disbelieve(d *doubted, by int64) {
	rec := s.order.at(d.record)
	line := sampled{text: d.text[:d.size], number: rec.Number}
	s.letGo(d.record)
	many, unit := by/int64(24*time.Hour), "day"
	if many < 2 {
		many, unit = by/int64(time.Hour), "hour"
	}
	if many != 1 {
		unit += "s"
	}
	s.malformed(&line, fmt.Errorf("its time is %d %s after those of the lines around it", many, unit))
}

// held calls f for every record that waits.
func (s *source) held(f func(r *record)) {
	s.order.held(f)
	for _, d := range s.doubts.waiting() {
		f(s.order.at(d.record))
	}
}
