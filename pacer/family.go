package pacer

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A family is the lines of one host and credential whose requests no route covers. It begins with
// one line for all of them. If the responses to a path describe another budget than the line has,
// that path gets a line of its own, so that two limiters under one credential do not stall each
// other.
//
// Two responses are taken to describe different budgets if the server names them differently, if
// their limits differ, or if their Resets lie farther apart than one window can explain. A path
// whose own responses change keeps its line: its limiter has several windows, or was changed.
type family struct {
	split atomic.Bool // whether there is more than one line

	mu    sync.RWMutex
	lines []*line // the first takes the paths that nothing is known of
	names []string
	of    map[place]*line // of the paths that have been answered
}

// A place is where a request goes, as far as limiters tell requests apart: identifiers in the path
// are left out.
type place struct{ method, path string }

const (
	mostLines  = 64   // of a family
	mostPlaces = 1024 // likewise
)

// placeOf returns the place of a request. It allocates only if the path has identifiers.
func placeOf(r *http.Request) place {
	path := r.URL.Path
	for start := 0; start < len(path); {
		end := len(path)
		if i := strings.IndexByte(path[start:], '/'); i >= 0 {
			end = start + i
		}
		if varies(path[start:end]) {
			segments := strings.Split(path, "/")
			for i, s := range segments {
				if varies(s) {
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

// varies reports whether a segment of a path looks like an identifier: it is long, or has a digit
// and is no version (v1).
func varies(segment string) bool {
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

// idle reports whether nothing would be lost with the family.
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

// settle returns the line whose budget a response describes, and remembers it for the place that
// answered. l is the line that the request waited in.
func (f *family) settle(t *Transport, r *http.Request, l *line, says stated) *line {
	now, at := t.now(), placeOf(r)
	f.mu.RLock()
	known := f.of[at]
	f.mu.RUnlock()
	if known != nil && (says.name == "" || f.named(known, says.name)) {
		return known
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	to := f.match(l, says, now)
	if to == nil && len(f.lines) < mostLines {
		to = f.own(t, r, at)
	}
	if to == nil {
		return l
	}
	for i := range f.lines {
		if f.lines[i] == to && says.name != "" {
			f.names[i] = says.name
		}
	}
	if known != nil || len(f.of) < mostPlaces {
		f.of[at] = to
	}
	return to
}

// own returns the line of a place. It makes one only if there is none: a place whose budget gets
// another name again and again keeps its line. t.mu and f.mu are held.
func (f *family) own(t *Transport, r *http.Request, at place) *line {
	l := t.enlist(t.uncoveredLine(r, at.method+" "+at.path))
	if !slices.Contains(f.lines, l) {
		l.family = f
		f.lines, f.names = append(f.lines, l), append(f.names, "")
		f.split.Store(true)
	}
	return l
}

// named reports whether a line is of the budget that the server names so, or of none that it has
// named.
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

// match returns a line whose budget a response can describe, l first; nil if there is none. f.mu is
// held.
func (f *family) match(l *line, says stated, now int64) *line {
	var found *line
	for i, other := range f.lines {
		if says.name != "" && f.names[i] != "" && f.names[i] != says.name {
			continue
		}
		if view := other.ways[0].windows[0].look(); view.describes(says, now) {
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
func (b *budget) describes(says stated, now int64) bool {
	if b.limit == 0 {
		return true // nothing is known of it
	}
	if says.Limit != 0 && says.Limit != b.limit {
		return false
	}
	if b.phase != known || now >= b.restored(now) {
		return true // the next window may be restored at any time
	}
	if _, ok := b.distance(says, sent{at: now, now: now}, says.Date); !ok {
		return true // it will not be believed
	}
	restored := now + says.after
	if says.after == 0 {
		if restored = b.clock.reaches(says.Reset, now); says.Date > 0 && !b.clock.set {
			restored = now + held(says.Reset-says.Date)
		}
	}
	apart := restored - b.restored(now)
	if apart < 0 {
		apart = -apart
	}
	return apart <= now-b.seen+2*second
}

// elsewhere reports whether the call waits in a line that its path has left.
func (c *call) elsewhere() bool {
	f := c.line.family
	return f != nil && f.split.Load() && f.line(c.request) != c.line
}

// enter waits until the call may start, in whichever line its path belongs to by then. An error is
// a *WaitError or the context's.
func (c *call) enter() (pass, error) {
	for {
		p, err := c.line.enter(c)
		if err != errElsewhere {
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

// finish takes in what came back for a call that started. It returns what
// window.finish does.
func (c *call) finish(p pass, a answer) (until int64) {
	l := c.line
	if l.family == nil || a.kind != binding {
		return l.finish(c.t, p, a)
	}
	to := l.family.settle(c.t, c.request, l, a.fields)
	if to == l {
		return l.finish(c.t, p, a)
	}
	l.finish(c.t, p, answer{kind: unsent}) // another budget was charged
	l.reconsider()
	window := to.ways[0].windows[0]
	until = window.hear(&c.t.ledger, p.of(l, 0), a)
	window.wake(nil)
	return until
}
