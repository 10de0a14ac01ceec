package pacer

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A family is the lines of one host and credential whose requests no route covers. It begins with
// one line for all of them. If the responses to a path describe another budget than the line's,
// that path gets a line of its own, so that two limiters under one credential do not stall each
// other.
//
// Two responses describe different budgets if the server names them differently, if their limits
// differ, or if their Resets are farther apart than one window can explain. A path whose own
// responses change keeps its line: its limiter has several windows, or was changed.
type family struct {
	split atomic.Bool // whether there is more than one line

	mu    sync.RWMutex
	lines []*line // the first is for paths that have not been answered
	names []string
	of    map[place]*line // by the paths that have been answered
}

// A place is a method and a path without identifiers: limiters do not distinguish requests further.
type place struct{ method, path string }

const (
	maxLines  = 64   // of a family
	maxPlaces = 1024 // of a family
)

// placeOf returns the place of a request. It allocates only for a path with identifiers.
func placeOf(r *http.Request) place {
	path := r.URL.Path
	for start := 0; start < len(path); {
		end := len(path)
		if i := strings.IndexByte(path[start:], '/'); i >= 0 {
			end = start + i
		}
		if isID(path[start:end]) {
			segments := strings.Split(path, "/")
			for i, s := range segments {
				if isID(s) {
					segments[i] = "*"
				}
			}
			path = strings.Join(segments, "/")
			break
		}
		start = end + 1
	}
	return place{r.Method, path}
}

// isID reports whether a segment of a path looks like an identifier: it is long, or it has a digit
// and is no version (v1).
func isID(segment string) bool {
	if len(segment) > 40 {
		return true
	}
	if len(segment) > 1 && len(segment) <= 4 && (segment[0] == 'v' || segment[0] == 'V') {
		return false
	}
	return strings.ContainsAny(segment, "0123456789")
}

// line returns the line of a request.
func (f *family) line(r *http.Request) *line {
	if !f.split.Load() {
		return f.first()
	}
	at := placeOf(r)
	f.mu.RLock()
	defer f.mu.RUnlock()
	if l := f.of[at]; l != nil {
		return l
	}
	return f.lines[0]
}

func (f *family) first() *line {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.lines[0]
}

// idle reports whether the family can be dropped without a loss.
func (f *family) idle(now int64) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, l := range f.lines {
		if l.users.Load() > 0 || !l.idle(now) {
			return false
		}
	}
	return true
}

// assign returns the line whose budget a response describes, and remembers it for the place of the
// request. l is the line that the request waited in.
func (f *family) assign(t *Transport, r *http.Request, l *line, reported report) *line {
	now, at := t.now(), placeOf(r)
	f.mu.RLock()
	known := f.of[at]
	f.mu.RUnlock()
	if known != nil && (reported.name == "" || f.named(known, reported.name)) {
		return known
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	to := f.match(l, reported, now)
	if to == nil && len(f.lines) < maxLines {
		to = f.newLine(t, r, at)
	}
	if to == nil {
		return l
	}
	for i := range f.lines {
		if f.lines[i] == to && reported.name != "" {
			f.names[i] = reported.name
		}
	}
	if known != nil || len(f.of) < maxPlaces {
		f.of[at] = to
	}
	return to
}

// newLine returns the line of a place. It makes one only if there is none, so that a place whose
// budget changes its name again and again keeps its line. t.mu and f.mu are held.
func (f *family) newLine(t *Transport, r *http.Request, at place) *line {
	l := t.intern(t.uncoveredLine(r, at.method+" "+at.path))
	if !slices.Contains(f.lines, l) {
		l.family = f
		f.lines, f.names = append(f.lines, l), append(f.names, "")
		f.split.Store(true)
	}
	return l
}

// named reports whether the name of a line's budget is this one or unknown.
func (f *family) named(l *line, name string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for i := range f.lines {
		if f.lines[i] == l {
			return f.names[i] == "" || f.names[i] == name
		}
	}
	return false
}

// match returns a line whose budget a response can describe, preferably l, or nil. f.mu is held.
func (f *family) match(l *line, reported report, now int64) *line {
	var found *line
	for i, other := range f.lines {
		if reported.name != "" && f.names[i] != "" && f.names[i] != reported.name {
			continue
		}
		if view := other.ways[0].windows[0].snapshot(); view.describes(reported, now) {
			if other == l {
				return l
			}
			if found == nil {
				found = other
			}
		}
	}
	return found
}

// describes reports whether a response can be about the budget b.
func (b *budget) describes(reported report, now int64) bool {
	if b.limit == 0 {
		return true // nothing is known of it
	}
	if reported.Limit != 0 && reported.Limit != b.limit {
		return false
	}
	if b.phase != known || now >= b.restored(now) {
		return true // the next window may be restored at any time
	}
	if _, ok := b.distance(reported, sent{at: now, now: now}, reported.Date); !ok {
		return true // the response will not be believed
	}
	restored := now + reported.after
	if reported.after == 0 {
		if restored = b.clock.reaches(reported.Reset, now); reported.Date > 0 && !b.clock.set {
			restored = now + toNanos(reported.Reset-reported.Date)
		}
	}
	apart := restored - b.restored(now)
	if apart < 0 {
		apart = -apart
	}
	return apart <= now-b.seen+2*second
}

// moved reports whether the call waits in a line that its path has left.
func (c *call) moved() bool {
	f := c.line.family
	return f != nil && f.split.Load() && f.line(c.request) != c.line
}

// enter waits until the call may start, in the line of its path at that time. An error is a
// *WaitError or the context's.
func (c *call) enter() (pass, error) {
	for {
		p, err := c.line.enter(c)
		if err != errMoved {
			return p, err
		}
		left := c.line
		c.line = c.t.line(c.request)
		left.users.Add(-1)
		if c.ticket != refusedFirst {
			c.ticket = 0
		}
	}
}

// finish handles the answer to a call that started. It returns what window.finish does.
func (c *call) finish(p pass, a answer) (until int64) {
	l := c.line
	if l.family == nil || a.kind != binding {
		return l.finish(c.t, p, a)
	}
	to := l.family.assign(c.t, c.request, l, a.fields)
	if to == l {
		return l.finish(c.t, p, a)
	}
	l.finish(c.t, p, answer{kind: unsent}) // another budget was charged
	l.reconsider()
	window := to.ways[0].windows[0]
	until = window.learnElsewhere(&c.t.ledger, p.of(l, 0), a)
	window.wake(nil)
	return until
}
