package watch_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/watch"
	"github.com/weirlimit/weir/memstore"
)

// A desk decides requests as a server does, with a real decider, a real store and a clock that
// tests set.
type desk struct {
	t       testing.TB
	decider *weir.Decider
	scratch weir.Scratch
}

// keys are a caller's key sources, by name.
type keys map[string]string

func (k keys) AppendKey(dst []byte, source string) ([]byte, bool) {
	v, ok := k[source]
	return append(dst, v...), ok
}

func newDesk(t testing.TB, now func() time.Time, limiters ...weir.Limiter) *desk {
	t.Helper()
	store, err := memstore.New(memstore.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	d, err := weir.New(weir.Policy{Limiters: limiters}, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &desk{t: t, decider: d}
}

func window(t testing.TB, limit int64, unit, key string) weir.Window {
	t.Helper()
	k, err := weir.ParseKey(key)
	if err != nil {
		t.Fatal(err)
	}
	per := map[string]time.Duration{"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}[unit]
	return weir.Window{Limit: limit, Per: per, Key: k}
}

// event decides a request of an address.
func (d *desk) event(limiter, ip string) answer.Observation { return d.of(limiter, keys{"ip": ip}, 0) }

// of decides a request. The result is valid until the next call.
func (d *desk) of(limiter string, caller weir.Keys, cost int64) answer.Observation {
	d.t.Helper()
	decision := new(weir.Decision)
	r := weir.Request{Keys: caller, Limiters: []string{limiter}, Cost: cost, Scratch: &d.scratch}
	if err := d.decider.DecideInto(context.Background(), &r, decision); err != nil {
		d.t.Fatal(err)
	}
	e := answer.Observation{Limiter: limiter, Outcome: answer.Admitted, Decision: decision, Who: d.scratch.Who(&decision.Standings()[0]), Caller: caller}
	if !decision.Allowed {
		e.Outcome = answer.Refused
	}
	return e
}

func newRecorder(t testing.TB, now func() time.Time) *watch.Recorder {
	t.Helper()
	r, err := watch.New(watch.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// limiter returns a limiter of a snapshot.
func limiter(t testing.TB, s watch.Snapshot, name string) watch.Limiter {
	t.Helper()
	for _, l := range s.Limiters {
		if l.Name == name {
			return l
		}
	}
	t.Fatalf("the snapshot has no limiter %q", name)
	return watch.Limiter{}
}
