package edge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/memstore"
)

func TestStoreValuesAreParsedByTheirRow(t *testing.T) {
	for value, want := range map[string]struct {
		name   string
		shared bool
	}{
		"memory":                               {"memory", false},
		"redis://ann:secret@h:1/2?prefix=edge": {"redis://h:1/2?prefix=edge", true},
		"REDISS://h":                           {"rediss://h:6379", true},
		"redis-sentinel://:secret@h/m":         {"redis-sentinel://h:26379/m", true},
		"rediss-sentinel://h:7/m":              {"rediss-sentinel://h:7/m", true},
	} {
		t.Run(value, func(t *testing.T) {
			var s Store
			if err := s.Set(value); err != nil || s.String() != want.name || s.Shared() != want.shared {
				t.Errorf("%q is %v, shared %v, %v; want %+v", value, &s, s.Shared(), err, want)
			}
		})
	}
	for _, value := range []string{"", "disk", "Memory", "memory://", "redis", "valkey://h", "redis://:secret@", "redis-sentinel://h"} {
		s := new(Store)
		if err := s.Set(value); err == nil || strings.Contains(err.Error(), "secret") || s.String() != "memory" {
			t.Errorf("%q is %v, %v", value, s, err)
		}
		if shown := s.Redact(value); strings.Contains(shown, "secret") {
			t.Errorf("of %q an error shows %q", value, shown)
		}
	}
	if zero := new(Store); zero.String() != "memory" || zero.Shared() {
		t.Errorf("the zero value is %v", zero)
	}
}

// A store's text can be parsed again, so help and the start-up text show valid
// values.
func FuzzAStoresTextParsesAgain(f *testing.F) {
	for _, seed := range []string{"memory", "redis://h:1/2?prefix=edge", "rediss-sentinel://[::1]:7,h/m", "redis://u:p@h", "x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var first, second Store
		if first.Set(text) != nil {
			return
		}
		printed := first.String()
		if err := second.Set(printed); err != nil || second.String() != printed {
			t.Errorf("%q prints %q, which prints %q, %v", text, printed, second.String(), err)
		}
	})
}

// silent is a store outside this process that does not answer.
type silent struct{}

func (silent) Take(context.Context, []weir.Charge, *weir.Receipt) error {
	return errors.New("no answer")
}

func TestTheLogOfAnOutageComesBeforeTheObservers(t *testing.T) {
	c := testConfig(t, twoPolicy)
	var called []string
	record := func(who string) func(failover.Event) {
		return func(failover.Event) { called = append(called, who) }
	}
	h := &hooks{storeEvents: []func(failover.Event){record("metrics"), record("another")}}
	logged := func(p weir.Policy, e failover.Event) {
		if len(p.Limiters) != 1 || !e.Failing {
			t.Errorf("the log has %+v, under %+v", e, p)
		}
		called = append(called, "log")
	}
	var own parts
	defer own.close()
	local, err := memstore.New(memstore.Options{Memory: memstore.MinMemory})
	if err != nil {
		t.Fatal(err)
	}
	own.own(local.Close)
	k, err := openCounter(&c, &openStore{counts: silent{}, fallback: local, outage: logged}, h, &own)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // the first few are not an outage
		_, _ = k.Decide(t.Context(), weir.Request{Method: "GET", Path: "/", Keys: anybody{}})
	}
	if !slices.Equal(called, []string{"log", "metrics", "another"}) {
		t.Errorf("called were %v", called)
	}
}

// anybody is a caller that has every key source.
type anybody struct{}

func (anybody) AppendKey(to []byte, _ string) ([]byte, bool) { return append(to, "any"...), true }

func TestWithoutHooksNothingIsCalled(t *testing.T) {
	h := new(hooks)
	if each(h.decisions) != nil || each(h.shadows) != nil || each(h.candidates) != nil || each(h.storeEvents) != nil || eachOf(h.takes) != nil || each(h.settled) != nil || eachOf(h.held) != nil {
		t.Error("a hook that does nothing costs every request a call")
	}
}

func TestAStoreThatCannotBeUsedFailsWithAHint(t *testing.T) {
	c := testConfig(t, twoPolicy)
	c.KeySecret = "nowhere"
	if err := c.Store.Set("redis://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	var failure *cli.Failure
	if _, err := Open(t.Context(), c); !errors.As(err, &failure) || failure.Hint == "" || failure.Exit != cli.Failed {
		t.Errorf("the secret is missing: %v", err)
	}
}
