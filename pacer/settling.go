package pacer

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// A settling is what a window gets back after the answers of its calls (D28). Its limiter charges
// a call the most that it can cost, and gives back what it has not cost. A response states what is
// left while its own call is still charged in full, and no response states what has come back
// since. So the window remembers which calls have ended, and learns how much of their charge they
// have kept. This is known to this process only. The window's lock protects it.
type settling struct {
	on bool // the limiter of the routes gives units back

	tick  uint64 // orders starts, ends and responses
	read  uint64 // tick of the newest response
	ended []endedCall
	open  int64 // units of the calls whose answers have not ended

	kept  float64 // the part of their charge that calls have kept, at most; see learned
	known bool    // kept was learned
}

// An endedCall is a call whose answer has ended. No response has stated what is left since.
type endedCall struct {
	tick  uint64
	units int64 // that it was charged
}

// back returns how many units the calls that have ended give back, as far as was learned. Calls
// that ended while the newest response was on its way may be in that already. They only count if
// idle is true: then no call is under way that will tell more.
func (s *settling) back(idle bool) (units int64) {
	kept := s.kept
	switch {
	case !s.known && !idle:
		return 0
	case !s.known:
		kept = 0 // the response to one call will show it
	}
	for _, e := range s.ended {
		if idle || e.tick > s.read {
			units += e.units - int64(kept*float64(e.units))
		}
	}
	return units
}

// mostBack returns how many units of calls that were admitted can come back at most.
func (w *window) mostBack() (units int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.ended {
		units += e.units
	}
	return units + w.open
}

// start returns the tick of a call that starts.
func (s *settling) start() uint64 {
	s.tick++
	return s.tick
}

// end records that a call has ended.
func (s *settling) end(units int64) {
	const most = 1 << 10 // between two responses
	if s.tick++; len(s.ended) < most {
		s.ended = append(s.ended, endedCall{s.tick, units})
	}
}

// observe handles a response that states what is left. was and is are the budget before and after
// it. alone means that no other call was in flight. A refusal shows that calls keep all of their
// charge, or that others spend.
func (s *settling) observe(of sent, was, is *budget, alone, refused bool) {
	if is.reset != was.reset || is.limit != was.limit { // another window: nothing comes back to it
		s.ended = s.ended[:0]
	}
	full, certain, left := int64(0), alone && of.tick > s.read, s.ended[:0]
	for _, e := range s.ended {
		if e.tick > of.tick {
			left = append(left, e)
			continue
		}
		full += e.units
		certain = certain && e.tick > s.read
	}
	switch {
	case full == 0:
	case refused:
		s.learn(1)
	case certain && was.phase == known && is.phase == known && !was.upperBound:
		s.learn(float64(was.remaining-of.cost+full-is.remaining) / float64(full))
	}
	s.ended = left
	s.tick++
	s.read = s.tick
}

// learn takes part into what calls keep of their charge. What is learned falls by a thousandth
// each time, so it is close to the most that any call has kept lately: with less memory, calls of
// very different costs are refused. What others spend at the same time makes it larger.
func (s *settling) learn(part float64) {
	const memory = 0.999
	part = min(max(part, 0), 1)
	if s.known {
		part = max(part, memory*s.kept)
	}
	s.kept, s.known = part, true
}

// endedIn handles the end of a call that was charged to the window with this reset.
func (w *window) endedIn(reset, units int64) {
	w.mu.Lock()
	w.open -= units
	if w.view.phase == known && w.view.reset == reset {
		w.settling.end(units)
	}
	w.mu.Unlock()
	w.wake(nil)
}

// charged are the windows of a call that its answer may give units back to.
type charged struct {
	n     int
	of    [maxWindows]*window
	reset [maxWindows]int64
	units [maxWindows]int64
}

// charged returns the windows to which a call may get units back when it has ended. Its answer has
// been handled.
func (l *line) charged(p pass) (c charged) {
	for _, w := range p.way.windows {
		w.mu.Lock()
		if w.on && w.view.phase == known {
			c.of[c.n], c.reset[c.n], c.units[c.n] = w, w.view.reset, w.cost(l.cost)
			w.open += c.units[c.n]
			c.n++
		}
		w.mu.Unlock()
	}
	return c
}

// cost returns what a call of a limiter with this cost spends in the window.
func (w *window) cost(cost int64) int64 {
	if w.declared.requests {
		return 1
	}
	return cost
}

// after calls f once when the body of a response has ended or is closed, or when ctx, that of its
// request, has ended: that ends the answer, unless it is a 101. A response without a body has
// ended.
func after(ctx context.Context, response *http.Response, f func()) {
	if response.Body == nil || response.Body == http.NoBody {
		f()
		return
	}
	f = sync.OnceFunc(f)
	if w, ok := response.Body.(io.Writer); ok { // of a 101
		response.Body = struct {
			*lastRead
			io.Writer
		}{&lastRead{ReadCloser: response.Body, over: f}, w}
		return
	}
	stop := context.AfterFunc(ctx, f)
	response.Body = &lastRead{ReadCloser: response.Body, over: func() {
		stop()
		f()
	}}
}

// A lastRead is a body that tells when it has ended.
type lastRead struct {
	io.ReadCloser
	over func()
}

func (b *lastRead) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.over()
	}
	return n, err
}

func (b *lastRead) Close() error {
	defer b.over()
	return b.ReadCloser.Close()
}
