//go:build linux

package memstore

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// overtakenStore returns a store in whose next take a second ends while the take freezes its
// windows, once arm has been called: the take reads the clock again, and that calls frozen.
func overtakenStore(t *testing.T, file string, clock *storetest.ManualClock) (s *Store, arm func(frozen func())) {
	t.Helper()
	var atReading func()
	s, err := New(Options{File: file, Now: func() time.Time {
		now := clock.Now()
		if f := atReading; f != nil {
			atReading = nil
			f()
		}
		return now
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, func(frozen func()) {
		atReading = func() {
			clock.Advance(time.Second)
			s.clock.now() // as another take does
			atReading = frozen
		}
	}
}

// A second ends while a take freezes its windows. When it reads the clock again all of them are
// frozen, so that nobody sees one of them in the next second before the take is counted in this
// one.
func TestATakeIsDecidedWithAllItsWindowsFrozen(t *testing.T) {
	s, arm := overtakenStore(t, "", storetest.StartManualClock())
	a, b := charge(1, 9), charge(2, 9)
	first := s.mustTake(t, a, b)

	frozen := -1
	arm(func() {
		frozen = 0
		for _, key := range [][]byte{a.Key, b.Key} {
			hash := s.seed.hash(key)
			if isBusy(s.table.find(hash).word.Load(), hash) {
				frozen++
			}
		}
	})
	if r := s.mustTake(t, a, b); r.Now != first.Now+1 {
		t.Errorf("the take is of second %d; it was decided in %d", r.Now, first.Now+1)
	}
	if frozen != 2 {
		t.Errorf("%d of 2 windows were frozen when the take read the clock again (-1: it never did)", frozen)
	}
}

// A take is delayed while the store is closed. Nobody can open the file before it is counted.
func TestCloseWaitsForATakeThatHasFrozenItsWindows(t *testing.T) {
	file, clock := filepath.Join(t.TempDir(), "counts"), storetest.StartManualClock()
	s, arm := overtakenStore(t, file, clock)
	a, b := charge(1, 9), charge(2, 9)
	s.mustTake(t, a, b)
	for s.table.unchecked.Load() {
		runtime.Gosched()
	}

	delayed, proceed, taken, closed := make(chan bool), make(chan bool), make(chan error), make(chan error)
	arm(func() { close(delayed); <-proceed })
	go func() {
		var r weir.Receipt
		taken <- s.Take(context.Background(), []weir.Charge{a, b}, &r)
	}()
	<-delayed
	go func() { closed <- s.Close() }()
	for !s.closed.Load() {
		runtime.Gosched()
	}
	var inUse *InUseError
	if _, err := New(Options{File: file, Now: clock.Now}); !errors.As(err, &inUse) {
		t.Errorf("the file is opened with a take under way: %v", err)
	}
	close(proceed)
	if err := <-taken; err != nil {
		t.Errorf("the delayed take: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	next, _ := overtakenStore(t, file, clock)
	if r := next.mustTake(t, a, b); r.Used[0].Count != 3 || r.Used[1].Count != 3 {
		t.Errorf("after three takes: %+v", r)
	}
}
