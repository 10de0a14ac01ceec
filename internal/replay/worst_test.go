package replay

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Only a few names are kept, and yet they are those of the callers who were refused most.
func TestTheWorstAreThoseWhoWereRefusedMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "1 per day by ip")), Worst: rapid.IntRange(1, 5).Draw(t, "worst")})
		refused, requests := make(map[string]int64), make(map[string]int64)
		for i, peer := range rapid.SliceOfN(rapid.IntRange(0, 9), 1, 200).Draw(t, "peers") {
			name := fmt.Sprintf("192.0.2.%d", peer)
			if send(t, r, float64(i), name); requests["ip "+name] > 0 {
				refused["ip "+name]++
			}
			requests["ip "+name]++
		}
		var counts []int64
		for _, n := range refused {
			counts = append(counts, n)
		}
		slices.SortFunc(counts, func(a, b int64) int { return int(b - a) })
		got := report(t, r).Policy.Limiters[0].Worst
		if len(got) != min(len(counts), r.options.Worst) {
			t.Fatalf("%d of %d are told", len(got), len(counts))
		}
		for i, c := range got {
			if c.Refused != counts[i] || refused[c.Name] != c.Refused || requests[c.Name] != c.Requests || c.Peak != c.Requests || c.First > c.Last {
				t.Fatalf("the %dth is %+v, want %d refusals; it had %d", i, c, counts[i], refused[c.Name])
			}
		}
	})
}

func TestACallerOfTwoWindowsIsToldOnce(t *testing.T) {
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "1 per minute by ip", "2 per day by ip", "3 per hour by everyone"))})
	for _, s := range []float64{0, 1, 61, 62, 121, 181} { // refused by the minute, by both, by the day twice
		send(t, r, s, "192.0.2.7")
	}
	l := report(t, r).Policy.Limiters[0]
	if want := []Caller{{Name: "ip 192.0.2.7", Requests: 6, Refused: 4, First: noon + 1, Last: noon + 181, Peak: 2}}; !slices.Equal(l.Worst, want) {
		t.Errorf("%+v, want %+v", l.Worst, want)
	}
	for i, want := range []int64{2, 3, 0} {
		if l.Windows[i].Refused != want || (l.Windows[i].Touched.N > 0) != (want > 0) {
			t.Errorf("window %d: %+v, want %d", i, l.Windows[i], want)
		}
	}
}
