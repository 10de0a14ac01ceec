package main

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
)

// A claim of docs/performance.md about p99 with a saturated gateway: a gateway of one core polls 64
// connections and serves the ready ones of each poll. If it serves them in order of arrival, p99 is
// near the mean. If it serves them in reverse order, as Go's runtime does (runtime.netpollready
// pushes, injectglist pops), p99 is twice the mean.
func TestTheOrderOfServingMakesTheP99(t *testing.T) {
	inOrder, reversed := simulate(slices.Clip[[]event]), simulate(func(found []event) []event { slices.Reverse(found); return found })
	t.Logf("p99 by the mean: %.2f in order, %.2f reversed", inOrder, reversed)
	if inOrder > 1.1 || reversed < 1.9 {
		t.Errorf("p99 is %.2f times the mean in order and %.2f times reversed: the page says 1.05 and 1.96", inOrder, reversed)
	}
}

// An event is input on a caller's connection, or on its connection to the upstream.
type event struct {
	at     float64
	caller int
	answer bool // from the upstream; otherwise a request
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// simulate returns p99 divided by the mean. On average a step of the gateway takes 6.5 µs, one of
// the other side 3.5 (the callers and the upstream share a core), and a poll 1; a fifth of each is
// random.
func simulate(order func([]event) []event) float64 {
	const callers, warm, wanted = connections, 2000, 60_000
	chance := rand.New(rand.NewPCG(1, 2))
	lasts := func(mean float64) float64 { return 0.8*mean + 0.2*mean*chance.ExpFloat64() }
	sent := new(events) // sent by the gateway, in flight
	for i := range callers {
		// an answer to nothing, after which every caller sends a request
		heap.Push(sent, event{caller: i, answer: true})
	}
	var came, found []event
	var began [callers]float64
	var took []float64
	here, there := 0.0, 0.0 // the time on each core
	others := func() {
		for len(*sent) > 0 && max(there, (*sent)[0].at) <= here {
			e := heap.Pop(sent).(event)
			there = max(there, e.at) + lasts(3.5)
			if e.answer { // the caller has its answer, and sends again
				if began[e.caller] > 0 {
					took = append(took, there-began[e.caller])
				}
				began[e.caller] = there
			}
			came = append(came, event{at: there, caller: e.caller, answer: !e.answer})
		}
	}
	for len(took) < wanted {
		if len(found) == 0 {
			others()
			here++
			n := 0
			for n < len(came) && came[n].at <= here {
				n++
			}
			found = order(slices.Clone(came[:n]))
			came = came[n:]
			continue
		}
		e := found[0]
		found = found[1:]
		here += lasts(6.5)
		heap.Push(sent, event{at: here, caller: e.caller, answer: e.answer})
		others()
	}
	took = took[warm:]
	slices.Sort(took)
	sum := 0.0
	for _, x := range took {
		sum += x
	}
	return took[len(took)*99/100] / (sum / float64(len(took)))
}
