package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimit/weir"
)

// linearizable records the receipts of concurrent takes on small limits while the clock moves, and
// checks with porcupine that some sequential order of the takes gives the same receipts.
func linearizable(h *harness) {
	for round := range 80 {
		history := record(h, round, func(random *rand.Rand) []weir.Charge {
			in := charges{charge(fmt.Sprintf("%d/%d", round, random.IntN(2)), 3, 2*time.Second, 1)}
			if random.IntN(2) == 0 {
				in = append(in, charge(fmt.Sprintf("%d/common", round), 5, 4*time.Second, 1))
			}
			return in
		}, func(string) {})
		if !porcupine.CheckOperations(linearModel(), history) {
			h.Fatalf("round %d: no order of the takes explains their answers", round)
		}
	}
}

// linearizableWhileGrowing is linearizable for takes of every shape: gates, costs from 0 to more
// than fits, and up to MaxCharges windows in any order. Meanwhile other goroutines open new keys.
func linearizableWhileGrowing(h *harness) {
	for round := range 60 {
		windows := contended(round)
		var over atomic.Bool
		var growing sync.WaitGroup
		for i := range 2 {
			growing.Go(func() { openNewKeys(h, fmt.Sprintf("%d/new/%d", round, i), 300, &over) })
		}
		history := record(h, round, func(random *rand.Rand) []weir.Charge {
			n := []int{1, 1, 1, 2, 2, 3, weir.MaxCharges}[random.IntN(7)]
			in := make(charges, n)
			for i, w := range random.Perm(len(windows))[:n] {
				in[i] = windows[w]
				in[i].Cost = []int64{weir.Gate, 0, 1, 1, 1, 2, 3}[random.IntN(7)]
			}
			return in
		}, func(name string) { openNewKeys(h, name, 3, &over) })
		over.Store(true)
		growing.Wait()
		if h.Failed() {
			return
		}
		if !porcupine.CheckOperations(linearModel(), history) {
			h.Fatalf("round %d: no order of the takes explains their answers", round)
		}
	}
}

// contended returns MaxCharges windows with small limits: some end all the time, some never.
func contended(round int) (all []weir.Charge) {
	pers := []time.Duration{2 * time.Second, 3 * time.Second, time.Minute}
	for i := range weir.MaxCharges {
		all = append(all, charge(fmt.Sprintf("%d/%d", round, i/len(pers)), int64(3+i), pers[i%len(pers)], 1))
	}
	return all
}

// openNewKeys opens new keys, alone and in pairs, until there are enough or it is over. Each take
// is admitted.
func openNewKeys(h *harness, name string, enough int, over *atomic.Bool) {
	for n := 0; n < enough && !over.Load(); n++ {
		in := charges{charge(fmt.Sprint(name, "/", n), 1, 20*time.Second, 1)}
		if n%4 == 0 {
			in = append(in, charge(fmt.Sprint(name, "/", n), 1, 2*time.Second, 1))
		}
		if !h.take(in...).Allowed {
			h.Errorf("the first take of %s/%d was refused", name, n)
		}
	}
}

// record has callers take the charges from draw, while they move the clock and call between. It
// returns each take with its receipt.
func record(h *harness, round int, draw func(*rand.Rand) []weir.Charge, between func(name string)) []porcupine.Operation {
	const callers, takes = 6, 8
	var tick atomic.Int64
	var each [callers][]porcupine.Operation
	together(callers, func(i int) {
		random := rand.New(rand.NewPCG(uint64(round), uint64(i)))
		for n := range takes {
			in := asked{draw(random), h.clock.Now().Unix()}
			call := tick.Add(1)
			out := h.take(in.charges...)
			each[i] = append(each[i], porcupine.Operation{ClientId: i, Input: in, Call: call, Output: out, Return: tick.Add(1)})
			if after := h.clock.Now().Unix(); out.Now < in.since || out.Now > after {
				h.Errorf("a take from %d to %d was judged at %d", in.since, after, out.Now)
			}
			if random.IntN(6) == 0 {
				h.advance(time.Second)
			}
			between(fmt.Sprintf("%d/between/%d/%d", round, i, n))
		}
	})
	return slices.Concat(each[:]...)
}

// asked is one take; the store's clock was since before it.
type asked struct {
	charges charges
	since   int64
}

// model is the state of every window according to weir's own arithmetic.
type model struct {
	now  int64
	used map[string]weir.Used
}

// step is one take as the model decides it, at the store's time.
func (m model) step(in []weir.Charge, out weir.Receipt) (bool, model) {
	if out.Now < m.now {
		return false, m
	}
	if out.Remembered {
		return m.explains(in, out), model{out.Now, maps.Clone(m.used)}
	}
	next := model{out.Now, make(map[string]weir.Used, len(m.used)+len(in))}
	for k, u := range m.used {
		next.used[k] = u
	}
	allowed := true
	for _, c := range in {
		u := m.used[string(c.Key)].At(out.Now, c.End(out.Now))
		next.used[string(c.Key)] = u
		allowed = allowed && u.Fits(c.Cost, c.Limit)
	}
	for i, c := range in {
		if allowed {
			next.used[string(c.Key)] = next.used[string(c.Key)].Spend(c.Cost, c.End(out.Now))
		}
		if out.Used[i] != next.used[string(c.Key)] {
			return false, m
		}
	}
	return out.Allowed == allowed, next
}

// explains reports whether a refusal from memory was right: of the windows that it shows as spent,
// the one with the last reset is spent until then. The refusal need not know how much more others
// have spent, or how the other windows stand.
func (m model) explains(in []weir.Charge, out weir.Receipt) bool {
	last := -1
	for i, c := range in {
		if u := out.Used[i]; !u.Fits(c.Cost, c.Limit) && (last < 0 || u.Reset > out.Used[last].Reset) {
			last = i
		}
	}
	if out.Allowed || last < 0 {
		return false
	}
	u := m.used[string(in[last].Key)].At(out.Now, in[last].End(out.Now))
	return u.Reset == out.Used[last].Reset && u.Count >= out.Used[last].Count
}

func linearModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return model{} },
		Step: func(state, input, output any) (bool, any) {
			return linearStep(state.(model), input.(asked), output.(weir.Receipt))
		},
		Equal: func(a, b any) bool {
			return a.(model).now == b.(model).now && maps.Equal(a.(model).used, b.(model).used)
		},
	}
}

// linearStep drops windows that have ended, so that equal states are equal. A take may be decided
// in a second that passed while it was in flight, though a take that began no earlier has seen that
// second end: each is right at its own time.
func linearStep(m model, in asked, out weir.Receipt) (bool, any) {
	latest := max(m.now, out.Now)
	if out.Now >= in.since {
		m.now = min(m.now, out.Now)
	}
	ok, next := m.step(in.charges, out)
	if !ok {
		return false, m
	}
	next.now = latest
	for k, u := range next.used {
		if u.Reset <= next.now {
			delete(next.used, k)
		}
	}
	return true, next
}
