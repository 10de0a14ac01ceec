package memstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

func TestResetAcceptsAtMostATakesWindows(t *testing.T) {
	s := newSmall(t)
	if err := s.Reset(t.Context(), make([]weir.Charge, weir.MaxCharges+1)); err == nil {
		t.Error("they were reset")
	}
}

func TestAClosedStoreReturnsErrors(t *testing.T) {
	s := newSmall(t)
	one, g := []weir.Charge{charge("three", 3, 3600, "a")}, []weir.Grant{{Limit: 9, Until: s.clock.Now().Unix() + 60}}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Reset(t.Context(), one); !errors.Is(err, memstore.ErrClosed) {
		t.Errorf("reset: %v", err)
	}
	if err := s.Grant(t.Context(), one, g); !errors.Is(err, memstore.ErrClosed) || s.Granted(one, g) {
		t.Errorf("grant: %v", err)
	}
}

// The number of grants is bounded: one more is rejected, and changes nothing. If a
// grant has ended or is removed, there is room.
func TestTheNumberOfGrantsIsBounded(t *testing.T) {
	s := newSmall(t)
	now := s.clock.Now().Unix()
	var all []weir.Charge
	var grants []weir.Grant
	for i := range weir.MaxGrants {
		all = append(all, charge("three", 3, 3600, fmt.Sprint(i)))
		grants = append(grants, weir.Grant{Limit: 5, Until: now + 60 + int64(i%2)*60})
	}
	if err := s.Grant(t.Context(), all, grants); err != nil {
		t.Fatal(err)
	}
	more, g := []weir.Charge{charge("three", 3, 3600, "one more")}, []weir.Grant{{Limit: 9, Until: now + 300}}
	if err := s.Grant(t.Context(), more, g); err == nil {
		t.Error("there is no bound")
	}
	found := make([]weir.Grant, 1)
	if s.Granted(more, found) {
		t.Errorf("it was refused, and is %+v", found)
	}
	if err := s.Grant(t.Context(), []weir.Charge{more[0], all[0]}, []weir.Grant{g[0], {}}); err != nil || !s.Granted(more, found) {
		t.Errorf("one for another: %v", err)
	}
	s.clock.Advance(time.Minute)
	if err := s.Grant(t.Context(), all[:4], []weir.Grant{g[0], g[0], g[0], g[0]}); err != nil || !s.Granted(all[:1], found) || found[0] != g[0] {
		t.Errorf("half of them have ended: %v, %+v", err, found)
	}
}

// Granted runs for each request, so it does not allocate.
func TestGrantedDoesNotAllocate(t *testing.T) {
	s := newSmall(t)
	both := []weir.Charge{charge("three", 3, 3600, "a"), charge("three", 3, 3600, "b")}
	found := make([]weir.Grant, 2)
	ask := func() { s.Granted(both, found) }
	if n := testing.AllocsPerRun(100, ask); n > 0 {
		t.Errorf("with none: %v", n)
	}
	if err := s.Grant(t.Context(), both[:1], []weir.Grant{{Limit: 9, Until: s.clock.Now().Unix() + 60}}); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, ask); n > 0 || found[0].Limit != 9 {
		t.Errorf("with one: %v, %+v", n, found)
	}
}
