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

// linearizable records what concurrent takes on small limits answered while the clock moves, and asks whether some order
// of them, one after the other, would have answered the same (porcupine).
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

// linearizableWhileGrowing is linearizable for takes of every shape, costs of nothing up to what no longer fits and as
// many windows as there can be in any order, while others open ever new keys.
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
				in[i].Cost = []int64{0, 1, 1, 1, 2, 3}[random.IntN(6)]
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

// openNewKeys opens keys that nobody has opened, alone and in pairs, until there are enough or it is over. Each is admitted.
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

// record lets callers take what draw says, while they move the clock and do something else in between, and returns what
// they asked and were told.
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

// asked is one take as it was asked for, when the store's clock said since.
type asked struct {
	charges charges
	since   int64
}

// model is the state of every window, as weir's own arithmetic has it.
type model struct {
	now  int64
	used map[string]weir.Used
}

// step is one take as the model judges it, at the store's own time.
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
		u := m.used[string(c.Key)].At(out.Now, c.Per)
		next.used[string(c.Key)] = u
		allowed = allowed && u.Fits(c.Cost, c.Limit)
	}
	for i, c := range in {
		if allowed {
			next.used[string(c.Key)] = next.used[string(c.Key)].Spend(c.Cost, out.Now, c.Per)
		}
		if out.Used[i] != next.used[string(c.Key)] {
			return false, m
		}
	}
	return out.Allowed == allowed, next
}

// explains reports whether a store that did not ask was right to refuse: of the windows that it says are spent, the one that
// frees last is, until when it says. How much others have spent of it since, and how the other windows stand, it need not know.
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
	u := m.used[string(in[last].Key)].At(out.Now, in[last].Per)
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

// linearStep keeps no window that has ended, so that equal states are equal. A take may be judged at a second that passed while it
// was under way, and that another, which began no earlier, has seen the end of: each is right at its own.
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
