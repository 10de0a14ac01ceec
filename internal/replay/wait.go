package replay

import (
	"container/heap"
	"context"
	"fmt"
	"hash/maphash"
	"net/netip"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// Callers that keep the contract send a refused request again at its Reset, until it is served or
// they give up.
//
// Requests of one limiter with the same keys in all its windows are equal to the engine: if the
// first of them is refused at a time, so are all, until the same reset. So they wait in one line,
// and only the first is sent. A caller with a million waiting requests costs one refusal a window
// instead of a million, and each request is served in the same second as if all were sent. Lines
// whose time has come are processed in the order of their first requests.

// waiting are all lines of one policy.
type waiting struct {
	lane     *lane
	patience int64 // nanoseconds
	left     int64 // bytes
	lines    map[uint64]*line
	order    order
	next     int64 // the number of the next waiting request
	delay    *delay
	scratch  *weir.Scratch
	decision weir.Decision
}

// A line is the waiting requests that are equal to the engine.
type line struct {
	key     uint64
	limiter *limiter
	match   weir.Match
	who     kept
	judge   *weir.Decider
	items   []item // from head on
	ends    []end  // of items; nil if the limiter settles nothing, and no request has its cost
	head    int
	wake    int64 // Unix seconds
	place   int   // in order
}

// An item is one waiting request.
type item struct {
	number int64
	came   int64 // Unix nanoseconds
}

const (
	itemBytes = 2 * 16  // an item, in a slice that grows
	endBytes  = 2 * 32  // the end of one, whose limiter settles
	lineBytes = 1 << 10 // a line with its caller
)

func newWaiting(l *lane, memory int64) *waiting {
	return &waiting{lane: l, patience: int64(l.replay.options.Patience), left: memory, lines: make(map[uint64]*line), delay: newDelay(), scratch: new(weir.Scratch)}
}

// A kept is a caller that outlives its line of the log.
type kept struct {
	weir.SavedKeys
	addr netip.Addr
}

// Addr implements weir.Addresser.
func (k *kept) Addr() netip.Addr { return k.addr }

// add makes the present request wait, which was just refused.
func (w *waiting) add(s *limiter, d *weir.Decision) {
	r := w.lane.replay
	if s.delay == nil {
		s.delay = newDelay()
	}
	reset := d.Binding().Reset
	if tooLong(reset, r.now, w.patience) {
		w.giveUp(s)
		return
	}
	key, bytes := w.keyOf(s, d), itemBytesOf(s)
	l := w.lines[key]
	if l == nil {
		if w.left < lineBytes+bytes {
			w.drop(s)
			return
		}
		w.left -= lineBytes
		judge := w.lane.current()
		l = &line{key: key, limiter: s, match: judge.Named(s.rules.Name), judge: judge, who: keep(s, &r.caller), wake: reset}
		w.lines[key] = l
	}
	if w.left < bytes {
		w.drop(s)
		return
	}
	w.left -= bytes
	l.items = append(l.items, item{number: w.next, came: r.now})
	if bytes > itemBytes {
		l.ends = append(l.ends, r.end)
	}
	w.next++
	if len(l.items)-l.head == 1 {
		l.wake = reset
		heap.Push(&w.order, l)
	}
}

// itemBytesOf returns the bytes of one waiting request of a limiter.
func itemBytesOf(s *limiter) int64 {
	if s.rules.Settles() || s.rules.Reserve.From != (weir.Reading{}) {
		return itemBytes + endBytes
	}
	return itemBytes
}

// tooLong reports whether a wait from came, in nanoseconds, to reset, in seconds, exceeds the
// patience.
func tooLong(reset, came, patience int64) bool {
	return reset-came/int64(time.Second) > patience/int64(time.Second)+1 || reset*int64(time.Second)-came > patience
}

func (w *waiting) giveUp(s *limiter) { w.delay.gaveUp++; s.delay.gaveUp++ }
func (w *waiting) drop(s *limiter)   { w.delay.noRoom++; s.delay.noRoom++ }

// keyOf returns a hash that identifies the line of the present request: its limiter, the keys of
// its windows, and, if the limiter has exemptions or overrides, the address and token, and if
// it has plans, the plan.
func (w *waiting) keyOf(s *limiter, d *weir.Decision) uint64 {
	r := w.lane.replay
	key := append(append(r.key[:0], s.rules.Name...), 0)
	if w.lane.agentUnknown {
		key[len(key)-1] = 1 // its windows are others
	}
	standings := d.Standings()
	for i := range s.windows {
		for j := range standings {
			if s.indexOf(standings[j].Window) == i {
				key = append(key, w.lane.scratch.Who(&standings[j])...)
			}
		}
	}
	if s.special {
		addr, _ := r.caller.Addr().MarshalBinary() // does not fail
		key = append(append(key, byte(len(addr))), addr...)
		key, _ = r.caller.AppendKey(key, identity.Token)
	}
	if len(s.rules.Plans.List) > 0 {
		plan, _ := r.caller.Plan(s.rules.Plans.By)
		key = append(append(key, byte(len(plan))), plan...)
	}
	r.key = key
	return maphash.Bytes(r.seed, key)
}

// keep returns what a limiter needs to know of the present caller.
func keep(s *limiter, c *caller) kept {
	k := kept{SavedKeys: weir.SaveKeys(s.rules, c), addr: c.Addr()}
	if s.special {
		if _, ok := k.AppendKey(nil, identity.Token); !ok {
			if id, ok := c.AppendKey(nil, identity.Token); ok {
				k.SavedKeys = append(k.SavedKeys, weir.SavedSource{Source: identity.Token, Value: id})
			}
		}
	}
	return k
}

// until sends the requests that wait for a time up to at, in Unix nanoseconds, until a request in
// flight ends.
func (w *waiting) until(at int64) error {
	for len(w.order) > 0 {
		l := w.order[0]
		if l.wake > at/int64(time.Second) {
			return nil
		}
		if w.lane.flights.due(l.wake * int64(time.Second)) {
			return nil // a request in flight ends before
		}
		w.lane.now = max(w.lane.now, l.wake*int64(time.Second))
		if err := w.send(l); err != nil {
			return err
		}
	}
	return nil
}

// send sends the first request of a line.
func (w *waiting) send(l *line) error {
	request := weir.Request{Keys: &l.who, Match: l.match, Scratch: w.scratch}
	if l.ends != nil {
		request.Cost = l.ends[l.head].reserve(l.limiter.rules)
	}
	if err := l.judge.DecideInto(context.Background(), &request, &w.decision); err != nil {
		return fmt.Errorf("replay under policy %q: send a request of limiter %q again: %w", w.lane.name, l.limiter.rules.Name, err)
	}
	if w.decision.Allowed {
		took := w.lane.now - l.items[l.head].came
		w.delay.served(took)
		l.limiter.delay.served(took)
		if l.ends != nil {
			l.limiter.noteEnd(&w.decision, l.ends[l.head])
			w.lane.begin(&w.scratch, l.judge, l.ends[l.head])
		}
		w.pop(l)
	} else {
		l.wake = max(w.decision.Binding().Reset, l.wake+1)
		for l.head < len(l.items) && tooLong(l.wake, l.items[l.head].came, w.patience) {
			w.giveUp(l.limiter)
			w.pop(l)
		}
	}
	if l.head == len(l.items) {
		heap.Remove(&w.order, l.place)
		delete(w.lines, l.key)
		w.left += lineBytes
		return nil
	}
	heap.Fix(&w.order, l.place)
	return nil
}

// pop removes the first request of a line.
func (w *waiting) pop(l *line) {
	l.head++
	w.left += itemBytesOf(l.limiter)
	if l.head >= 64 && l.head > len(l.items)/2 {
		l.items = l.items[:copy(l.items, l.items[l.head:])]
		if l.ends != nil {
			l.ends = l.ends[:copy(l.ends, l.ends[l.head:])]
		}
		l.head = 0
	}
}

// order is a heap of lines by their time, then by the arrival of their first requests.
type order []*line

func (o order) Len() int { return len(o) }
func (o order) Less(i, j int) bool {
	a, b := o[i], o[j]
	if a.wake != b.wake {
		return a.wake < b.wake
	}
	return a.items[a.head].number < b.items[b.head].number
}
func (o order) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].place, o[j].place = i, j
}
func (o *order) Push(x any) {
	l := x.(*line)
	l.place = len(*o)
	*o = append(*o, l)
}
func (o *order) Pop() any {
	old := *o
	l := old[len(old)-1]
	*o = old[:len(old)-1]
	return l
}
