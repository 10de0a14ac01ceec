package pacer_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/pacer"
)

// A costly is a caller whose calls reserve units and cost others, and its limiter.
type costly struct {
	limit, reserve int64
	seconds        int
	workers        int
	costs          []int64         // by call
	lasts          []time.Duration // by call
	early          time.Duration   // how long before the caller sees the end the server has settled
}

func drawCostly(t *rapid.T) costly {
	c := costly{
		reserve: rapid.SampledFrom([]int64{1, 2, 10, 100, 4000}).Draw(t, "reserve"),
		seconds: rapid.SampledFrom([]int{2, 10, 60, 3600}).Draw(t, "seconds"),
		workers: rapid.IntRange(1, 20).Draw(t, "workers"),
		early:   time.Duration(rapid.IntRange(0, 500).Draw(t, "early")) * time.Millisecond,
	}
	c.limit = c.reserve*rapid.Int64Range(1, 30).Draw(t, "calls of a window") + rapid.Int64Range(0, c.reserve-1).Draw(t, "more")
	calls := rapid.IntRange(1, 80).Draw(t, "calls")
	c.costs = drawCosts(t, c.reserve, calls)
	for range calls {
		c.lasts = append(c.lasts, time.Duration(rapid.IntRange(0, 3000).Draw(t, "lasts"))*time.Millisecond)
	}
	return c
}

// drawCosts draws costs that are hard to learn: any, the same, ever higher ones, and such that stay
// the same for some time.
func drawCosts(t *rapid.T, reserve int64, calls int) (costs []int64) {
	kind := rapid.SampledFrom([]string{"any", "the same", "rising", "regimes", "all or nothing"}).Draw(t, "kind")
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	cost := random.Int64N(reserve + 1)
	for i := range calls {
		switch {
		case kind == "any", kind == "regimes" && i%20 == 0:
			cost = random.Int64N(reserve + 1)
		case kind == "rising":
			cost = reserve * int64(i) / int64(calls)
		case kind == "all or nothing":
			cost = reserve * random.Int64N(2)
		}
		costs = append(costs, cost)
	}
	return costs
}

// call makes all calls, of a limiter that reads their cost from a field or from the body.
func (c *costly) call(t *testing.T, inHead bool) *settlingServer {
	limiter := chat(fmt.Sprintf("%d per %d seconds by ip", c.limit, c.seconds))
	limiter.Cost = c.reserve
	if inHead {
		limiter.Actual = weir.Reading{Form: weir.ReadHeader, Name: "X-Cost"}
	}
	s, routes := newSettlingServer(t, limiter)
	s.inHead, s.mayLose = inHead, true
	s.costs = func(call int) int64 { return c.costs[call] }
	s.lasts = func() time.Duration { return c.lasts[s.calls-1] }
	base := doer(func(r *http.Request) (*http.Response, error) {
		response, err := s.RoundTrip(r)
		if body, ok := response.Body.(*settlingBody); ok {
			time.AfterFunc(max(body.lasts-c.early, 0), body.over)
			body.over = nil
		}
		return response, err
	})
	s.call(len(c.costs), c.workers, pacer.New(&pacer.Options{Base: base, Routes: routes, MaxWait: 1000 * time.Hour, Threshold: pacer.Keep(0)}))
	return s
}

// If the status or a field of an answer reports its cost, nothing has to be guessed: whatever calls
// cost and however long they last, none is refused.
func TestCallsWhoseCostIsInTheHeadAreNeverRefused(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := drawCostly(r)
		var s *settlingServer
		bubble(t, func(t *testing.T) { s = c.call(t, true) })
		if s.refused != 0 || s.calls != len(c.costs) {
			r.Fatalf("%d of %d calls were served, %d were refused: %+v", s.calls, len(c.costs), s.refused, c)
		}
	})
}

// If the body reports the cost, a guess can be wrong. Then a call is refused, but none is refused
// so often that it is lost.
func TestNoCallIsLostWhateverCallsCost(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := drawCostly(r)
		var s *settlingServer
		bubble(t, func(t *testing.T) { s = c.call(t, false) })
		if s.calls != len(c.costs) {
			r.Fatalf("%d of %d calls were served, %d were refused: %+v", s.calls, len(c.costs), s.refused, c)
		}
	})
}

// If no two calls fit into a window, no two responses can be compared. What was learned when calls
// kept their charge is doubted then, so that calls that give back nearly all use the window again.
func TestWhatIsNotSeenAgainIsForgotten(t *testing.T) {
	const calls = 300
	for _, seconds := range []int{60, 3600} {
		c := costly{limit: 4464, reserve: 4000, seconds: seconds, workers: 1, lasts: make([]time.Duration, calls)}
		for i := range calls {
			cost := int64(80)
			if i < 3 {
				cost = c.reserve
			}
			c.costs = append(c.costs, cost)
		}
		bubble(t, func(t *testing.T) {
			began := time.Now()
			s := c.call(t, false)
			if windows := int(time.Since(began).Seconds()) / seconds; windows > calls/3 || s.calls != calls {
				t.Errorf("%d of %d calls were served in %d windows of %d s, refused %d", s.calls, calls, windows, seconds, s.refused)
			}
		})
	}
}

// A guess that was wrong is not repeated in each window: costs that are the same, or rise, are
// learned, also if no two calls fit into a window, so that no two responses can be compared.
func TestAWrongGuessIsNotRepeatedInEachWindow(t *testing.T) {
	const calls = 40
	for _, c := range []costly{
		{limit: 1, reserve: 1, seconds: 3600, workers: 5},
		{limit: 137, reserve: 100, seconds: 3600, workers: 2},
		{limit: 4002, reserve: 4000, seconds: 60, workers: 2},
		{limit: 101, reserve: 100, seconds: 10, workers: 2},
	} {
		for _, rise := range []int64{0, 1} {
			for i := range int64(calls) {
				c.costs = append(c.costs[:i:i], max(c.reserve*9/10, 1)*(1-rise)+c.reserve*i/calls*rise)
			}
			c.lasts = make([]time.Duration, calls)
			bubble(t, func(t *testing.T) {
				if s := c.call(t, false); s.refused > calls/4 || s.calls != calls {
					t.Errorf("limit %d, reserve %d, costs %d to %d: %d of %d calls were served, %d were refused", c.limit, c.reserve, c.costs[0], c.costs[calls-1], s.calls, calls, s.refused)
				}
			})
		}
	}
}
