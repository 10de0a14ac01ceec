package pacer

import (
	"context"
	"io"
	"math"
	"net/http"
	"sync"
)

// A settling is what a window gets back after the answers of its calls (D28). Its limiter charges a
// call the most that it can cost, and gives back what it has not cost. If the status or a field of
// the response reports the cost, that has happened when the response states what is left. If its
// body does (later), the response states what is left while its own call is still charged in full,
// and no response states what has come back since. So the window remembers which calls have ended,
// and learns how much of their charge they have kept. This is known to this process only. The
// window's lock protects it.
type settling struct {
	on    bool // the limiter of the routes gives units back
	later bool // it does when the answer has ended

	tick  uint64 // orders starts, ends and responses
	read  uint64 // tick of the newest response
	ended []endedCall
	open  int64 // units of the calls that have a response, and whose answers have not ended

	// the parts of their charge that calls have kept at most and at least; see learn
	most, least float64
	known       bool // they were learned
	seen        bool // a call of this window has shown what it kept
	doubted     bool // none of the windows since most was learned has

	// The part that a call is taken to have kept if nothing is in flight and the Reset is far away:
	// 0, until a call that was sent on that guess was refused.
	guess float64

	// What is left and what calls that have not ended are charged, together, at most, as a
	// response has shown it, and the units of the calls that have ended since. It falls by what
	// they keep, and rises only if others get units back.
	whole      int64
	endedSince int64
}

// An endedCall is a call whose answer has ended. No response has stated what is left since.
type endedCall struct {
	tick  uint64
	units int64 // that it was charged
}

// back returns how many units the calls that have ended give back, as far as was learned. Calls
// that ended while the newest response was on its way may be in that already, so they do not count.
// The server may have settled other calls before their end was seen here, and the newest response
// may include them: whole bounds the result. If idle is true, no call is under way that will show
// more, so all calls count, and one call that starts will show what is left. If it would otherwise
// wait for long, they count in full: what was learned may be wrong.
func (s *settling) back(remaining int64, idle, long bool) (units int64) {
	kept := s.most
	switch {
	case !s.known && !idle:
		return 0
	case idle && (long || !s.known): // its response will show it
		for _, e := range s.ended {
			units += e.units
		}
		return units - int64(math.Round(s.guess*float64(units)))
	}
	for _, e := range s.ended {
		if idle || e.tick > s.read {
			units += e.units - keptOf(kept, e.units)
		}
	}
	if idle {
		return units
	}
	return max(min(units, s.whole-keptOf(s.most, s.endedSince)-s.open-remaining), 0)
}

// unseenMemory is how much of what no call has shown again lasts from window to window, so that one
// tries again.
const unseenMemory = 0.9

// keptOf returns how many of the units that a call was charged it has kept, if it kept this part.
func keptOf(part float64, units int64) int64 { return int64(math.Ceil(part * float64(units))) }

// mostBack returns how many units can come back at most of calls of this process that were sent.
// Those in flight may have been charged too. w.mu is held.
func (w *window) mostBack() (units int64) {
	for _, e := range w.ended {
		units += e.units
	}
	return units + w.open + w.flying
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
	s.endedSince += units
}

// observe handles a response that states what is left. was and is are the budget before and after
// it. flying is what other calls without a response may have been charged. A refusal shows that
// calls keep all of their charge, or that others spend.
func (s *settling) observe(of sent, was, is *budget, remaining, flying int64, refused bool) {
	if refused { // less than its cost is left, and 0 is stated
		remaining = of.cost
	}
	another := is.reset != was.reset || is.limit != was.limit
	if another { // nothing comes back to it
		s.ended = s.ended[:0]
		if !s.seen {
			s.most, s.guess, s.doubted = s.most*unseenMemory, s.guess*unseenMemory, true
		}
		s.seen = false
	}
	full, after, certain, left := int64(0), int64(0), flying == 0 && of.tick > s.read, s.ended[:0]
	for _, e := range s.ended {
		if e.tick > of.tick {
			after += e.units
			left = append(left, e)
			continue
		}
		full += e.units
		certain = certain && e.tick > s.read
	}
	switch {
	case full == 0:
	case refused && flying+s.open == 0: // it was sent to find out what is left
		s.guess = 1
		if !s.known {
			s.most, s.known = 1, true
		}
		// less than its cost was left, so the calls have kept this part on average at least
		s.most = max(s.most, min(float64(full-max(of.cost-1-was.remaining, 0))/float64(full), 1))
	case refused:
		s.most, s.known, s.seen = 1, true, true
	case was.remaining+s.open-of.cost+full > s.whole-keptOf(s.least, s.endedSince-full):
		// what was left had units of a call whose end was not seen yet
	case certain && was.phase == known && is.phase == known && !was.upperBound:
		s.learn(float64(was.remaining-of.cost+full-is.remaining) / float64(full))
	}
	// the calls that ended while this one was in flight may still have been charged in full
	whole, atMost := remaining+s.open+flying+is.lost+after, s.whole-keptOf(s.least, s.endedSince)
	switch ended := s.endedSince - after; {
	case another || is.remaining > atMost:
		s.whole, s.endedSince = max(whole, is.remaining), after
	case whole < atMost:
		if ended > 0 && !refused {
			s.most, s.seen = max(s.most, min(float64(s.whole-whole)/float64(ended), 1)), true
		}
		s.whole, s.endedSince = whole, after
	}
	s.ended = left
	s.tick++
	s.read = s.tick
}

// learn learns which part of their charge calls keep. What is learned moves by a thousandth each
// time, so it is close to the most and the least that any call has kept lately: with less memory,
// calls of very different costs are refused. What others spend at the same time makes it larger. A
// negative part shows nothing: a call whose end was not seen yet has given units back.
func (s *settling) learn(part float64) {
	const memory = 0.999
	if part = min(part, 1); part < 0 {
		return
	}
	s.guess, s.seen = min(s.guess, part), true
	if s.doubted {
		s.most, s.least, s.doubted = part, part, false
	}
	if !s.known {
		s.most, s.least, s.known = max(part, s.most), part, true
		return
	}
	s.most, s.least = max(part, memory*s.most), min(part, 1-memory*(1-s.least))
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
	reset [maxWindows]int64 // 0: not known
	units [maxWindows]int64
}

// charged returns the windows to which a call may get units back when it has ended. Its answer has
// been handled, and was no refusal: finish has counted the call as open.
func (l *line) charged(p pass) (c charged) {
	for _, w := range p.way.windows {
		if !w.later {
			continue
		}
		w.mu.Lock()
		c.of[c.n], c.units[c.n] = w, w.cost(l.cost)
		if w.view.phase == known {
			c.reset[c.n] = w.view.reset
		}
		w.mu.Unlock()
		c.n++
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
