package accesslog

import (
	"fmt"
	"slices"
	"time"
)

// A single time in the far future would stop the clock of the code that reads the lines, because
// that clock never goes back. So a time that is far ahead of all lines before it in its file is
// accepted only if most of the lines after it are as late.
const (
	farAhead  = int64(time.Hour)
	witnesses = 32 // lines after it that are compared; fewer at the end of a file
)

// doubts are lines of one file that wait, in file order, for the lines that decide whether the
// first of them is accepted.
type doubts struct {
	lines   []doubted
	settled int // number of lines already decided
}

type doubted struct {
	record int32
	size   int
	text   [shown]byte // the line's beginning before parsing, which may change it
}

func (d *doubts) waiting() []doubted { return d.lines[d.settled:] }

// doubt holds back a line that is far ahead, or that follows one that is held back.
func (s *source) doubt(i int32, size int) {
	d := &s.doubts
	if d.settled > witnesses {
		d.lines, d.settled = slices.Delete(d.lines, 0, d.settled), 0
	}
	d.lines = append(d.lines, doubted{i, size, s.begin})
}

// settle accepts or rejects the first held-back line. It returns false while it needs more lines to
// decide. At the end of a file it needs none.
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
		s.rejectTime(first, by)
	} else {
		s.take(first.record)
	}
	if s.doubts.settled++; len(rest) == 0 {
		s.doubts = doubts{lines: s.doubts.lines[:0]}
	}
	return true
}

// alone returns by how much a time is ahead of the lines around it, or 0 if fewer than half of the
// following lines are back in time.
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

// rejectTime rejects a line as malformed.
func (s *source) rejectTime(d *doubted, by int64) {
	rec := s.order.at(d.record)
	line := sampled{text: d.text[:d.size], number: rec.Number}
	s.release(d.record)
	many, unit := by/int64(24*time.Hour), "day"
	if many < 2 {
		many, unit = by/int64(time.Hour), "hour"
	}
	if many != 1 {
		unit += "s"
	}
	s.malformed(&line, fmt.Errorf("its time is %d %s after those of the lines around it", many, unit))
}

// held calls f for every buffered record.
func (s *source) held(f func(r *record)) {
	s.order.held(f)
	for _, d := range s.doubts.waiting() {
		f(s.order.at(d.record))
	}
}
