package accesslog

import (
	"errors"
)

// ErrNewestFirst means that the lines of a log are in reverse order of time. Windows cannot be
// counted backwards, and a log that is compressed or comes through a pipe cannot be read from its
// end.
var ErrNewestFirst = errors.New("its lines are newest first")

// A direction detects whether times in a file increase. Several processes write lines when requests
// end, so some lines are out of order. Only a clear majority of steps backwards counts.
type direction struct {
	last, newest int64
	forth, back  int
	far          bool // a line was later than can be sorted
	begun        bool
}

const (
	minBack  = 16 // min steps backwards before the file has ended
	minRatio = 8  // min ratio of steps backwards to steps forwards
)

// note records the time of the next line in file order. slack is how late a line may be and still
// be sorted; negative means none.
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

// backwards reports whether the file is newest first. ended means that there are no more lines.
func (d *direction) backwards(ended bool) bool {
	least := minBack
	if ended {
		least = 2
	}
	return d.far && d.back >= least && d.back >= minRatio*d.forth
}
