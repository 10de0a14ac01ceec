package accesslog

import (
	"errors"
)

// ErrNewestFirst is what a log ends with whose lines stand in the order opposite to that of their
// times. Windows cannot be counted backwards, and a log that is compressed or comes through a pipe
// cannot be read from its end.
var ErrNewestFirst = errors.New("its lines are newest first")

// A direction is which way the times of a file go. Lines that are written when requests end, and by
// several processes, are out of order now and then, so that only a clear majority of steps
// backwards tells.
type direction struct {
	last, newest int64
	forth, back  int
	far          bool // a line was older than the newest before it by more than lines are put in order within
	begun        bool
}

const (
	leastBack = 16 // steps backwards that tell before the file has ended
	mostForth = 8  // there are so many times more steps backwards than forwards
)

// note takes the time of the next line as it stands. slack is within what lines are put in order;
// less than 0 is none.
func (d *direction) note(at, slack int64) {
	if !d.begun {
		d.begun, d.last, d.newest = true, at, at
		return
	}
	switch {
	case at < d.last:
		d.back++
	case at > d.last:
		d.forth++
	}
	d.last, d.newest = at, max(d.newest, at)
	d.far = d.far || d.newest-at > max(slack, 0)
}

// backwards reports whether the file is newest first. ended says that there are no more lines.
func (d *direction) backwards(ended bool) bool {
	least := leastBack
	if ended {
		least = 2
	}
	return d.far && d.back >= least && d.back >= mostForth*d.forth
}
