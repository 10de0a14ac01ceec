package pacer

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"
)

// Budget returns the state of a request's limiter: of the windows that the request would be charged
// to, the one that makes it wait longest, else the one with the least left. It sends and counts
// nothing.
func (t *Transport) Budget(r *http.Request) Budget {
	l := t.line(r)
	defer l.users.Add(-1)
	now := t.now()
	l.refresh(t)
	t.reportFailure()
	var best Budget
	for i, w := range l.ways {
		var worst Budget
		for j, window := range w.windows {
			b := t.describe(window, l.cost, now)
			if j == 0 || b.Wait > worst.Wait || b.Wait == worst.Wait && b.Known && (!worst.Known || b.Remaining < worst.Remaining) {
				worst = b
			}
		}
		if i == 0 || worst.Wait < best.Wait || worst.Wait == best.Wait && worst.Remaining-worst.InFlight > best.Remaining-best.InFlight {
			best = worst
		}
	}
	best.Waiting = l.length()
	if wait := time.Duration(l.when(t, now, int64(best.Waiting)+1) - now); wait > best.Wait {
		best.Wait = wait
	}
	return best
}

// refresh reads the windows of a line from a shared view.
func (l *line) refresh(t *Transport) {
	for w := range l.windows() {
		w.refresh(&t.ledger)
	}
}

// length returns the number of waiting calls.
func (l *line) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.queue)
	if l.headed {
		n++
	}
	return n
}

// Budgets returns all known budgets, ordered by host, limiter and key.
func (t *Transport) Budgets() []Budget {
	t.mu.RLock()
	lines, windows := slices.Collect(maps.Values(t.lines)), slices.Collect(maps.Values(t.windows))
	t.mu.RUnlock()
	now := t.now()
	waiting := make(map[*window]int)
	costs := make(map[*window]int64)
	for _, l := range lines {
		n := l.length()
		for w := range l.windows() {
			waiting[w] += n
			costs[w] = l.cost
		}
	}
	all := make([]Budget, 0, len(windows))
	for _, w := range windows {
		w.refresh(&t.ledger)
		b := t.describe(w, max(costs[w], 1), now)
		b.Waiting = waiting[w]
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b Budget) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Limiter, b.Limiter), cmp.Compare(a.Key, b.Key),
			a.Egress.Compare(b.Egress), cmp.Compare(a.Per, b.Per))
	})
	return all
}

// describe returns what is known of a window.
func (t *Transport) describe(w *window, cost, now int64) Budget {
	view := w.snapshot()
	b := Budget{Host: w.host, Limiter: w.limiter, Key: w.shown, Egress: w.egress, InFlight: view.inFlight(), Per: time.Duration(view.length * second)}
	if view.phase == known && now < view.restored(now) && now >= view.seen {
		b.Known, b.Limit, b.Remaining = true, view.limit, view.remaining
		b.Reset = t.clock().Add(time.Duration(view.restored(now) - now))
	}
	if v := view.canStart(t.ask(cost, w), now); !v.start {
		b.Wait = time.Duration(v.until - now)
	}
	return b
}

// Estimate returns how long it takes at least until n more requests like r have started, if no one
// else spends from their budget. It includes the calls that already wait. It is 0 if nothing is
// known to delay them, or if n is below 1.
func (t *Transport) Estimate(r *http.Request, n int) time.Duration {
	if n < 1 {
		return 0
	}
	l := t.line(r)
	defer l.users.Add(-1)
	now := t.now()
	l.refresh(t)
	t.reportFailure()
	return time.Duration(l.when(t, now, int64(l.length())+int64(n)) - now)
}
