package failover_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
)

func windows(specs ...string) []weir.Window {
	var ws []weir.Window
	for _, s := range specs {
		w, err := weir.ParseWindow(s)
		if err != nil {
			panic(err)
		}
		ws = append(ws, w)
	}
	return ws
}

func policyOf(l ...weir.Limiter) weir.Policy { return weir.Policy{Limiters: l} }

func limiter(name string, specs ...string) weir.Limiter {
	return weir.Limiter{Name: name, Windows: windows(specs...)}
}

// caller returns key sources from a map.
type caller map[string]string

func (c caller) AppendKey(dst []byte, source string) ([]byte, bool) {
	v, ok := c[source]
	return append(dst, v...), ok
}

var ip = caller{"ip": "192.0.2.1"}

type fixedKeys struct{}

func (*fixedKeys) AppendKey(dst []byte, source string) ([]byte, bool) {
	return append(dst, "192.0.2.1"...), true
}

// A bench is a Decider that counts in a failover.Store.
type bench struct {
	testing.TB
	d    *weir.Decider
	over *failover.Store
}

// newBench puts a failover.Store around inner and a Decider before it.
func newBench(t testing.TB, p weir.Policy, inner, fallback weir.Store, o failover.Options) *bench {
	t.Helper()
	over, err := failover.New(inner, fallback, o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := weir.New(p, over, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{TB: t, d: d, over: over}
}

func (b *bench) ask(name string, cost int64, c caller) weir.Decision {
	b.Helper()
	d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{name}, Cost: cost, Keys: c})
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// want compares a decision with "allowed|refused LIMIT REMAINING seconds-to-reset
// retry-after".
func (b *bench) want(d weir.Decision, want string) {
	b.Helper()
	s, word := d.Binding(), "allowed"
	if !d.Allowed {
		word = "refused"
	}
	if got := fmt.Sprintf("%s %d %d %d %d", word, s.Limit, s.Remaining, s.Reset-d.Now, d.RetryAfter()); got != want {
		b.Errorf("got %q, want %q", got, want)
	}
}
