//go:build !race

// Millions of callers in one goroutine: the race detector would take fifty times as long, and finds
// nothing here.

package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

// Only a few names are kept, and they are those of the callers with the most refusals.
func TestTheWorstAreTheCallersWithTheMostRefusals(t *testing.T) {
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
			t.Fatalf("%d of %d are reported", len(got), len(counts))
		}
		for i, c := range got {
			if c.Refused != counts[i] || refused[c.Name] != c.Refused || requests[c.Name] != c.Requests || c.Peak != c.Requests || c.First > c.Last {
				t.Fatalf("the %dth is %+v, want %d refusals; it had %d", i, c, counts[i], refused[c.Name])
			}
		}
	})
}

func TestACallerOfTwoWindowsIsListedOnce(t *testing.T) {
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "1 per minute by ip", "2 per day by ip", "3 per hour by everyone"))})
	// refused by the minute, by both, by the day twice
	for _, s := range []float64{0, 1, 61, 62, 121, 181} {
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

// Only the second policy refuses a caller: the first policy's result must not evict it.
func TestTheNewlyRefusedAreNotEvictedForOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	lax, strict := policyOf(limiterOf(t, "all", "1000 per minute by ip")), policyOf(limiterOf(t, "all", "10 per minute by ip"))
	r := start(t, Options{Policy: lax, Against: &strict, Memory: MinMemory})
	for i := range 60 {
		send(t, r, float64(i)/2-60, "192.0.2.7")
	}
	crowd(t, r, 300_000)
	d := report(t, r).Difference
	want := Caller{Name: "ip 192.0.2.7", Requests: 60, Refused: 50, First: noon - 55, Last: noon - 31}
	if len(d.Worst) != 1 || d.Worst[0] != want || d.NewlyRefused != 50 || d.Doubt != (Doubt{Requests: true}) {
		t.Errorf("%+v, want %+v; %d newly refused; %+v", d.Worst, want, d.NewlyRefused, d.Doubt)
	}
}

// If all callers are refused something, the few with the most refusals are evicted last, and the
// list says that it may be wrong.
func TestTheWorstStayWhereAllAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "1 per minute by ip")), Memory: MinMemory})
	for i := range 51 {
		send(t, r, float64(i)-60, "192.0.2.7")
	}
	var peer []byte
	for i := range 300_000 {
		peer = fmt.Appendf(peer[:0], "10.%d.%d.%d", i>>16, i>>8&255, i&255)
		l := lineAt(float64(i)/100, "")
		l.Peer = peer
		for range 2 {
			if err := r.Add(l); err != nil {
				t.Fatal(err)
			}
		}
	}
	l := report(t, r).Policy.Limiters[0]
	if l.Worst[0].Refused != 50 || l.Worst[0].Name != "ip 192.0.2.7" || l.Doubt != (Doubt{Requests: true, Refused: true}) {
		t.Errorf("%+v, %+v", l.Worst[0], l.Doubt)
	}
}

// With any amount of memory, no caller is reported with too many refusals, and the clearly worst
// callers are listed.
func TestWhatIsForgottenOfTheWorstIsNeverTooMuch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		c := callers{pool: newPool(0)} // one segment
		w := worst{size: 5}
		truth := make(map[string]int64)
		for i := range 8000 {
			who := 5 + random.IntN(3000)
			if i%16 == 0 {
				who = i / 16 % 5 // 100 refusals each; the others have about three
			}
			name := fmt.Sprint(who)
			hash := uint64(who+1) * 0x9e3779b97f4a7c15
			e := c.at(hash, uint32(i))
			e.requests++
			if e.refused == 0 {
				e.first = uint32(i)
			}
			e.refused++
			truth[name]++
			w.note(&c, e, hash, 0, uint32(i), func(dst []byte) []byte { return append(dst, name...) })
		}
		if !c.lost() {
			t.Fatal("3000 callers fit into one segment")
		}
		for i, got := range w.callers(func(int) *callers { return &c }) {
			if got.Refused > truth[got.Name] || got.Requests > truth[got.Name] || got.Refused < 98 || got.Requests < got.Refused {
				t.Fatalf("the %dth is %+v, who was refused %d", i, got, truth[got.Name])
			}
		}
	})
}

// A caller with more refusals than before is not newly touched.
func TestTheNewlyTouchedAreThoseWhomOnlyTheSecondPolicyRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	three, two := policyOf(limiterOf(t, "all", "3 per minute by ip")), policyOf(limiterOf(t, "all", "2 per minute by ip"))
	count := func(first, second weir.Policy, refusals int) *Report {
		r := start(t, Options{Policy: first, Against: &second, Memory: MinMemory})
		for i := range 50 { // 10 are refused by both, 40 only by the stricter one
			for range 3 + i%5/4 {
				send(t, r, float64(i)/10-600, fmt.Sprintf("192.0.2.%d", i))
			}
		}
		crowd(t, r, refusals*100) // every hundredth is refused by two per minute
		return report(t, r)
	}
	for _, crowded := range []int{0, 2000} {
		more, fewer := count(three, two, crowded).Difference, count(two, three, crowded).Difference
		if more.NewlyTouched != (Count{N: int64(40 + crowded)}) || more.Freed.N != 0 || fewer.Freed != more.NewlyTouched || fewer.NewlyTouched.N != 0 {
			t.Errorf("%+v and %+v newly touched, %+v and %+v freed; want %d", more.NewlyTouched, fewer.NewlyTouched, more.Freed, fewer.Freed, 40+crowded)
		}
	}
}

func TestADifferenceOfEstimatesHasItsError(t *testing.T) {
	c := callers{pool: newPool(0), protected: touchedEither}
	random := rand.New(rand.NewPCG(1, 2))
	const n = 100_000
	for i := range n {
		e := c.at(random.Uint64(), 0)
		c.markAll(e, touchedSecond|touchedEither)
		if i%2 == 0 {
			c.markAll(e, touched)
		}
	}
	got := c.countOnly(touchedSecond, touched, touchedEither)
	if !got.Estimated || got.Off < 3000 || got.Off > 6000 || got.N < n/2-got.Off || got.N > n/2+got.Off {
		t.Errorf("%+v, want about %d", got, n/2)
	}
}
