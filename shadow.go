package weir

import (
	"context"
	"sync"
)

// MaxShadows is how many limiters in Shadow mode may stand one over another.
const MaxShadows = 4

// A beside is what one request is evaluated under without any effect on it. It is not changed once a Match has it.
type beside struct {
	shadows   [MaxShadows]*limiter // nil after the last
	candidate *candidate           // nil: none
	would     *limiter             // of the candidate; nil: none covers the request
}

// shadow returns b with one more limiter; b may be nil.
func (b *beside) shadow(l *limiter) *beside {
	out := new(beside)
	if b != nil {
		*out = *b
	}
	for i, s := range out.shadows {
		if s == nil {
			out.shadows[i] = l
			break
		}
	}
	return out
}

// match returns the most specific limiter that is enforced, with those in Shadow mode that stand over it.
func (c *compiled) match(method, path string) Match {
	if c.all == nil {
		return c.table.match(method, path)
	}
	var found Match
	n := 0
	var over beside
	c.all.walk(method, path, func(m Match) bool {
		if m.limiter.Mode != Shadow {
			found = m
			return false
		}
		for _, s := range over.shadows[:n] {
			if s == m.limiter {
				return true
			}
		}
		if n < MaxShadows { // and no more, as checkShadows has seen to
			over.shadows[n] = m.limiter
			n++
		}
		return true
	})
	if n > 0 {
		found.beside = &over
	}
	return found
}

// byName returns the limiter of a name as a Match.
func (c *compiled) byName(name string) Match {
	l := c.named[name]
	if l != nil && l.Mode == Shadow {
		return Match{beside: (*beside)(nil).shadow(l)}
	}
	return Match{limiter: l}
}

// checkShadows refuses more than MaxShadows limiters in Shadow mode over one another.
func (c *checker) checkShadows(to *compiled) {
	if to.all == nil || len(c.problems) > 0 {
		return
	}
	methods := map[string]bool{"": true}
	for i := range to.policy.Limiters {
		for _, r := range to.policy.Limiters[i].Routes {
			methods[r.Method] = true
		}
	}
	for i := range to.policy.Limiters {
		l := &to.policy.Limiters[i]
		if l.Mode != Shadow {
			continue
		}
		c.limiter = i
		for j, r := range l.Routes {
			if most := to.all.mostShadows(r.Path, methods); most > MaxShadows {
				c.add("routes", j, r.String(), "route %q: %d limiters in mode shadow stand one over another here: at most %d are allowed; try them out in a candidate policy", r, most, MaxShadows)
				return
			}
		}
	}
}

// mostShadows returns how many limiters in Shadow mode a request for path can meet, or for what follows it: an enforced limiter that
// hides shadows at the path itself may not cover that.
func (t *table) mostShadows(path string, methods map[string]bool) (most int) {
	for method := range methods {
		for _, follows := range [...]string{"", "\x00", "/\x00"} { // which no other route has
			met := make(map[*limiter]bool)
			t.walk(method, path+follows, func(m Match) bool {
				if m.limiter.Mode == Shadow {
					met[m.limiter] = true
				}
				return m.limiter.Mode == Shadow
			})
			most = max(most, len(met))
		}
	}
	return most
}

// A Shadowed is what a limiter in Shadow mode would have said to one request.
type Shadowed struct {
	Limiter  *Limiter  // read only
	Decision *Decision // Allowed says whether it would have let the request pass; nil where Skipped
	Skipped  bool      // it was not asked, because too many takes of shadow limiters wait for the store already
}

// decideBeside evaluates a request that was decided as out under what has no effect on it.
func (d *Decider) decideBeside(ctx context.Context, r *Request, live *ticket, out *Decision) {
	for _, l := range live.beside.shadows {
		if l == nil {
			break
		}
		d.shadow(ctx, l, r)
	}
	if c := live.beside.candidate; c != nil {
		d.compare(ctx, c, r, live, out)
	}
}

// shadow charges a request to a limiter in Shadow mode. A store that is not in this process is asked aside, so that the request does
// not wait for it.
func (d *Decider) shadow(ctx context.Context, l *limiter, r *Request) {
	t := d.tickets.Get().(*ticket)
	t.reset()
	if err := t.add(l, r); err != nil || d.complete(t) != nil { // a cost that this limiter could never serve
		d.tickets.Put(t)
		d.toldShadow(Shadowed{Limiter: &l.Limiter, Decision: &Decision{Outcome: Unlimited}})
		return
	}
	if d.inProcess {
		d.concludeShadow(ctx, l, t)
		return
	}
	if !d.aside.enter() {
		d.tickets.Put(t)
		d.toldShadow(Shadowed{Limiter: &l.Limiter, Skipped: true})
		return
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer d.aside.leave()
		d.concludeShadow(ctx, l, t)
	}()
}

func (d *Decider) concludeShadow(ctx context.Context, l *limiter, t *ticket) {
	defer d.tickets.Put(t)
	d.take(ctx, t)
	t.decide(&t.would)
	d.toldShadow(Shadowed{Limiter: &l.Limiter, Decision: &t.would})
}

func (d *Decider) toldShadow(s Shadowed) {
	if d.options.OnShadow != nil {
		d.options.OnShadow(s)
	}
}

// mostAside is how many takes of shadow limiters may wait for a store at a time.
const mostAside = 256

// aside counts those that do. The zero value is ready.
type aside struct {
	mu     sync.Mutex
	n      int
	closed bool
	empty  chan struct{} // not nil: Close waits
}

func (a *aside) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.n == mostAside {
		return false
	}
	a.n++
	return true
}

func (a *aside) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n--; a.n == 0 && a.empty != nil {
		close(a.empty)
		a.empty = nil
	}
}

// close lets nobody in any more, and waits until all have left or ctx ends.
func (a *aside) close(ctx context.Context) {
	a.mu.Lock()
	a.closed = true
	if a.n > 0 && a.empty == nil {
		a.empty = make(chan struct{})
	}
	empty := a.empty
	a.mu.Unlock()
	if empty == nil {
		return
	}
	select {
	case <-empty:
	case <-ctx.Done():
	}
}
