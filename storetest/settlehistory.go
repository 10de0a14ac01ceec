package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

// A ledgered window is a window and the takes, by number, that it counts and that are not settled.
type ledgered struct {
	weir.Used
	takes uint64 // a bit for each
}

// books is the state of every window and slot, by key, according to weir's own arithmetic.
type books struct {
	now  int64
	used map[string]ledgered
}

// take is one take as the books decide it at out.Now. number is below 64.
func (b books) take(in []weir.Charge, number int, out weir.Receipt) (bool, books) {
	next := books{out.Now, maps.Clone(b.used)}
	if next.used == nil {
		next.used = map[string]ledgered{}
	}
	allowed := true
	for _, c := range in {
		w := next.used[string(c.Key)]
		if !c.Held {
			if u := w.At(out.Now, c.End(out.Now)); u.Reset == 0 {
				w = ledgered{}
			} else {
				w.Used = u
			}
		}
		next.used[string(c.Key)] = w
		allowed = allowed && w.Fits(c.Cost, c.Limit)
	}
	for i, c := range in {
		w := next.used[string(c.Key)]
		switch {
		case !allowed || c.Cost <= 0:
		case c.Held:
			w.Count += c.Cost
			w.takes |= 1 << number
		default:
			w.Used = w.Spend(c.Cost, c.End(out.Now))
			w.takes |= 1 << number
		}
		next.used[string(c.Key)] = w
		if out.Used[i] != w.Used {
			return false, b
		}
	}
	return out.Allowed == allowed, next
}

// explain reports whether a refusal from memory was right (see model.explains).
func (b books) explain(in []weir.Charge, out weir.Receipt) bool {
	m := model{used: make(map[string]weir.Used, len(b.used))}
	for key, w := range b.used {
		m.used[key] = w.Used
	}
	return m.explains(in, out)
}

// settle is one change of a take as the books decide it: it is counted in the window that counts
// the take, and otherwise changes nothing. after is the store's clock after it. The count of slots
// that it reports is that of look.
func (b books) settle(c weir.Change, number int, after int64) (bool, books) {
	w, counts := b.used[string(c.Key)], uint64(1)<<number
	if w.takes&counts == 0 {
		return !c.Done || !c.Held && c.Reset <= b.now, b
	}
	next := books{b.now, maps.Clone(b.used)}
	w.takes &^= counts
	switch {
	case c.Done && c.Held:
		w.Count += c.Units
		next.used[string(c.Key)] = w
		return true, next
	case c.Done:
		w.Used = w.Settle(c.Units)
	default: // the window stays as it is: it has ended, or the store cannot tell
		next.used[string(c.Key)] = w
		return c.Lost || c.Units == 0 || !c.Held && c.Reset <= after, next
	}
	next.used[string(c.Key)] = w
	return w.Used == c.Used, next
}

// look reports whether slots are those that a settlement reports, which looks after it has given
// back those of its take.
func (b books) look(c weir.Change, number int) bool {
	w := b.used[string(c.Key)]
	return w.takes>>number&1 == 0 && w.Used == c.Used
}

// reset forgets a window.
func (b books) reset(c weir.Charge) books {
	next := books{b.now, maps.Clone(b.used)}
	delete(next.used, string(c.Key))
	return next
}

// settlesByArithmetic draws sequences of takes, settlements, resets and clock steps, and compares
// every answer with the arithmetic.
func settlesByArithmetic(s *settling) {
	k, _ := s.store.(weir.Keeper)
	serial := 0
	rapid.Check(s.T, func(t *rapid.T) {
		serial++
		b := books{}
		var open []outstanding
		for number := range rapid.IntRange(1, 60).Draw(t, "steps") {
			s.advance(time.Duration(rapid.IntRange(0, 3000).Draw(t, "milliseconds")) * time.Millisecond)
			step := rapid.IntRange(0, 9).Draw(t, "step")
			switch {
			case step < 5 || len(open) == 0:
				in := drawReservation(t, serial)
				out := s.take(in...)
				ok, next := b.take(in, number, out)
				if out.Remembered {
					ok, next = b.explain(in, out), b
				}
				if !ok {
					t.Fatalf("take of %+v answered %+v, which the arithmetic does not give from %+v", in, out, b)
				}
				if b = next; out.Allowed {
					open = append(open, outstandingOf(s, in, out, number)...)
				}
			case step == 5 && k != nil:
				c := open[rapid.IntRange(0, len(open)-1).Draw(t, "of")].change.Charge
				if c.Held {
					continue
				}
				if err := k.Reset(s.Context(), charges{c}); err != nil {
					t.Fatal(err)
				}
				b = b.reset(c)
			default:
				i := rapid.IntRange(0, len(open)-1).Draw(t, "of")
				o := open[i]
				open = slices.Delete(open, i, i+1)
				if o.change.Units = -o.change.Cost; !o.change.Held {
					o.change.Units += rapid.Int64Range(0, 2*o.change.Cost).Draw(t, "used")
				}
				out := o.settle()
				ok, next := b.settle(out, o.number, s.clock.Now().Unix())
				if out.Held && out.Done {
					ok = ok && next.look(out, o.number)
				}
				if !ok {
					t.Fatalf("settlement %+v of take %d is not what the arithmetic gives from %+v", out, o.number, b)
				}
				b = next
			}
		}
		for _, o := range open { // the next sequence begins without slots
			if o.change.Held {
				o.change.Units = -o.change.Cost
				o.settle()
			}
		}
	})
}

// An outstanding change is one charge of an allowed take that is not settled.
type outstanding struct {
	*taken
	number int // of the take
	change weir.Change
}

func outstandingOf(s *settling, in charges, out weir.Receipt, number int) (all []outstanding) {
	t := &taken{s, in, out}
	for i, c := range in {
		if c.Cost > 0 {
			all = append(all, outstanding{t, number, t.change(i, 0)})
		}
	}
	return all
}

func (o *outstanding) settle() weir.Change {
	o.Helper()
	one := []weir.Change{o.change}
	o.send(one...)
	return one[0]
}

func drawReservation(t *rapid.T, serial int) (in charges) {
	n := rapid.IntRange(1, 2).Draw(t, "windows")
	spans := rapid.Permutation([]time.Duration{5 * time.Second, 20 * time.Second, time.Minute}).Draw(t, "lengths")
	for _, per := range spans[:n] {
		who := fmt.Sprintf("%d/%s", serial, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "who"))
		in = append(in, charge(who, rapid.Int64Range(1, 12).Draw(t, "limit"), per, rapid.Int64Range(weir.Gate, 4).Draw(t, "cost")))
	}
	if rapid.Bool().Draw(t, "by the clock") {
		in = append(in, byClock(fmt.Sprint(serial), 9, "5 seconds", 2))
	}
	if rapid.Bool().Draw(t, "slot") {
		in = slices.Insert(in, rapid.IntRange(0, len(in)).Draw(t, "place"), slotsOf(fmt.Sprint(serial), 3))
	}
	return in
}

// An operation is what one caller does: a take, a settlement, or a reset.
type operation struct {
	asked                // of a take
	number int           // of the take that is taken or settled
	looks  bool          // a settlement of slots reports how many are taken
	reset  []weir.Charge // what an operator resets
}

// An outcome is what the store answers.
type outcome struct {
	receipt weir.Receipt
	change  *weir.Change // of a settlement
	after   int64        // the store's clock after it
}

// settlesLinearizable records takes, their settlements and resets of a few callers while the clock
// moves, and checks with porcupine that some order of them gives the same answers.
func settlesLinearizable(s *settling) {
	k, _ := s.store.(weir.Keeper)
	for round := range 120 {
		history := recordSettling(s, k, round)
		if s.Failed() {
			return
		}
		if !porcupine.CheckOperations(settlingModel(), history) {
			s.Fatalf("round %d: no order of the takes, settlements and resets explains the answers", round)
		}
	}
}

func recordSettling(s *settling, k weir.Keeper, round int) []porcupine.Operation {
	const callers, takes = 5, 8 // their product is the number of takes, below 64
	var tick atomic.Int64
	var each [callers][]porcupine.Operation
	together(callers, func(i int) {
		random := rand.New(rand.NewPCG(uint64(round), uint64(i)))
		did := func(in operation, act func() outcome) {
			in.since = s.clock.Now().Unix()
			call := tick.Add(1)
			out := act()
			back := tick.Add(1)
			out.after = s.clock.Now().Unix()
			each[i] = append(each[i], porcupine.Operation{ClientId: i, Input: in, Call: call, Output: out, Return: back})
			if c := out.change; c != nil && c.Held && c.Done { // others may come between both
				in.looks = true
				each[i] = append(each[i], porcupine.Operation{ClientId: i, Input: in, Call: call, Output: out, Return: back})
			}
		}
		var open []outstanding
		settle := func() {
			n := random.IntN(len(open))
			o := open[n]
			open = slices.Delete(open, n, n+1)
			if o.change.Units = -o.change.Cost; !o.change.Held {
				o.change.Units = []int64{-o.change.Cost, -o.change.Cost, -1, 1}[random.IntN(4)]
			}
			did(operation{number: o.number}, func() outcome {
				c := o.settle()
				return outcome{change: &c}
			})
		}
		for n := range takes {
			in := drawShared(random, round)
			number := i*takes + n
			var out weir.Receipt
			did(operation{asked: asked{charges: in}, number: number}, func() outcome {
				out = s.take(in...)
				return outcome{receipt: out}
			})
			if out.Allowed {
				open = append(open, outstandingOf(s, in, out, number)...)
			}
			for len(open) > 0 && random.IntN(5) < 3 {
				settle()
			}
			if k != nil && random.IntN(8) == 0 {
				reset := drawShared(random, round)[:1]
				did(operation{reset: reset}, func() outcome {
					if err := k.Reset(s.Context(), reset); err != nil {
						s.Errorf("reset: %v", err)
					}
					return outcome{}
				})
			}
			if random.IntN(8) == 0 {
				s.advance(time.Second)
			}
		}
		for len(open) > 0 {
			settle()
		}
	})
	return slices.Concat(each[:]...)
}

// drawShared draws charges of the few windows and slots of a round; the first is a window.
func drawShared(random *rand.Rand, round int) charges {
	in := charges{charge(fmt.Sprintf("%d/%d", round, random.IntN(2)), 6, 3*time.Second, 2)}
	if random.IntN(2) == 0 {
		// ends at the same second after a reset
		in[0] = byClock(fmt.Sprint(round), 6, "3 seconds", 2)
	}
	if random.IntN(2) == 0 {
		in = append(in, charge(fmt.Sprintf("%d/common", round), 12, 5*time.Second, 3))
	}
	if random.IntN(3) == 0 {
		in = append(in, slotsOf(fmt.Sprint(round), 2))
	}
	return in
}

func settlingModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return books{} },
		Step: func(state, input, output any) (bool, any) {
			return settlingStep(state.(books), input.(operation), output.(outcome))
		},
		Equal: func(a, b any) bool {
			return a.(books).now == b.(books).now && maps.Equal(a.(books).used, b.(books).used)
		},
	}
}

// settlingStep drops what has ended, as linearStep does.
func settlingStep(b books, in operation, out outcome) (bool, any) {
	switch {
	case in.looks:
		return b.look(*out.change, in.number), b
	case out.change != nil:
		return b.settle(*out.change, in.number, out.after)
	case in.reset != nil:
		return true, b.reset(in.reset[0])
	case out.receipt.Now < b.now && out.receipt.Now < in.since:
		return false, b
	case out.receipt.Remembered:
		return b.explain(in.charges, out.receipt), b
	}
	latest := max(b.now, out.receipt.Now)
	ok, next := b.take(in.charges, in.number, out.receipt)
	if !ok {
		return false, b
	}
	next.now = latest
	for key, w := range next.used {
		if w.Reset != 0 && w.Reset <= latest || w.Reset == 0 && w.Count == 0 {
			delete(next.used, key)
		}
	}
	return true, next
}
