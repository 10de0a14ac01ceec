package pacer

import "time"

// views are the budgets of a line's windows at one time, by way and window.
type views [][]view

// A view is a window's budget, and what a call asks of it.
type view struct {
	budget
	ask ask
	// units that calls of this process which were sent give back at most
	most int64
	// calls give units back when they have ended
	returns bool
	// a call that starts is taken to give back all that it is charged
	free bool
}

// calls returns how many calls could start between now and then.
func (v *view) calls(now, then int64) int64 {
	n := v.capacity(v.ask, now, then)
	if v.free && n > 0 {
		return endless
	}
	return n
}

func (l *line) views(t *Transport) views {
	all := make(views, len(l.ways))
	for i, w := range l.ways {
		for _, window := range w.windows {
			all[i] = append(all[i], window.look(t.ask(l.cost, window)))
		}
	}
	return all
}

// look returns a window's view.
func (w *window) look(a ask) view {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := view{budget: w.copy(), ask: a}
	if w.on {
		v.most, v.returns = w.mostBack(), true
	}
	return v
}

// optimistic returns the views with the largest values that are possible: units in flight or lost
// have already been charged, windows are no longer than is known now, and calls give back all that
// they can, also those that have not started.
func (v views) optimistic() views {
	all := make(views, len(v))
	for i, way := range v {
		for _, b := range way {
			if b.flights, b.lost, b.lengthWas = nil, 0, 0; b.phase == unknown {
				b.length = 0
			}
			b.remaining = max(b.remaining, min(b.remaining+b.most, b.limit))
			b.free = b.returns
			all[i] = append(all[i], b)
		}
	}
	return all
}

// when returns the earliest local time at which n calls could have started.
func (v views) when(now, n int64) int64 {
	enough := func(then int64) bool {
		sum := int64(0)
		for _, way := range v {
			free := int64(endless)
			for i := range way {
				free = min(free, way[i].calls(now, then))
			}
			if sum += free; sum >= n {
				return true
			}
		}
		return false
	}
	if enough(now) {
		return now
	}
	low, high := now, now+int64(maxEstimate)
	for high-low > 1 {
		if middle := low + (high-low)/2; enough(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// maxEstimate is the longest time that is returned; a longer one is cut to it.
const maxEstimate = 100 * 365 * 24 * time.Hour

// when is views.when for the calls of a line.
func (l *line) when(t *Transport, now, n int64) int64 {
	return l.views(t).when(now, n)
}
