package memstore

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/storetest"
)

// The load of the table is even: at each size a key needs at most 32 bytes.
func TestAKeyNeedsAtMost32BytesAtAnySize(t *testing.T) {
	s := newStore(t, Options{}, 16) // small segments, so many of them
	next, worst := 2000.0, 0.0
	for n := range uint64(60_000) {
		s.mustTake(t, charge(n, 5))
		if float64(n) < next {
			continue
		}
		next *= 1.05
		used, _ := s.table.arena.state()
		worst = max(worst, float64(used)*float64(s.table.arena.segmentBytes)/float64(n+1))
	}
	if worst > 32 {
		t.Errorf("at its worst the table held %.1f bytes a key", worst)
	}
	s.table.audit(t)
}

// After a flood the takes of the remaining callers return its memory, a little with
// each take.
func TestMemoryIsReturnedAfterAPeak(t *testing.T) {
	for _, file := range []string{"", filepath.Join(t.TempDir(), "counters")} {
		clock := storetest.StartManualClock()
		s := newStore(t, Options{Memory: 64 << 20, Now: clock.Now, File: file}, 64)
		for n := range uint64(50_000) {
			s.mustTake(t, charge(n, 5))
		}
		peak := s.Stats().Bytes
		clock.Advance(time.Minute)
		for range 300 { // five minutes of three callers
			for n := range uint64(3) {
				s.mustTake(t, charge(n, 1000))
			}
			clock.Advance(time.Second)
		}
		after := s.Stats()
		if after.Bytes > peak/8 {
			t.Errorf("of %d bytes the table still holds %d", peak, after.Bytes)
		}
		if n := len(s.table.arena.unbacked); int64(n)*s.table.arena.segmentBytes < peak/2 {
			t.Errorf("only %d segments have been returned to the system", n)
		}
		s.table.audit(t)
		for n := range uint64(50_000) { // returned memory can be used again
			if !s.mustTake(t, charge(n, 5)).Allowed {
				t.Fatalf("key %d was refused after the table had shrunk", n)
			}
		}
		s.table.audit(t)
	}
}

// A fullBacking has no room on its disk for a while.
type fullBacking struct {
	backing
	poor bool
}

var errNoRoom = errors.New("no space left on device")

func (g *fullBacking) extend(chunk int) error {
	if g.poor {
		return errNoRoom
	}
	return g.backing.extend(chunk)
}

func (g *fullBacking) restore(id uint32) error {
	if g.poor {
		return errNoRoom
	}
	return g.backing.restore(id)
}

// If the disk is full, the table keeps its size, logs that once, and counts
// exactly; new keys share budgets. Once there is room, it grows again.
func TestAFullDiskKeepsTheSizeAndIsLogged(t *testing.T) {
	var output bytes.Buffer
	clock := storetest.StartManualClock()
	s := newStore(t, Options{Now: clock.Now, Log: slog.New(slog.NewTextHandler(&output, nil))}, 64)
	g := &fullBacking{backing: s.table.arena.backing}
	s.table.arena.backing = g
	const limit = 3
	for n := range uint64(5000) {
		s.mustTake(t, charge(n, limit))
	}
	g.poor = true
	bytesBefore := s.Stats().Bytes
	for n := range uint64(50_000) {
		s.mustTake(t, charge(1<<32|n, limit))
	}
	if st := s.Stats(); st.Bytes > bytesBefore || st.Shared == 0 {
		t.Errorf("with a full disk the table went from %d bytes to %+v", bytesBefore, st)
	}
	for n := range uint64(5000) { // the keys of before have the rest of their limits
		for i := range limit {
			if allowed := s.mustTake(t, charge(n, limit)).Allowed; allowed != (i < limit-1) {
				t.Fatalf("take %d of key %d: allowed %v", i+2, n, allowed)
			}
		}
	}
	if n := strings.Count(output.String(), "no space left on device"); n != 1 {
		t.Errorf("the full disk was logged %d times:\n%s", n, output.String())
	}
	g.poor = false
	clock.Advance(2 * time.Minute)
	shared := s.Stats().Shared
	for n := range uint64(50_000) {
		if !s.mustTake(t, charge(1<<33|n, limit)).Allowed {
			t.Fatalf("newcomer %d was refused with room on the disk", n)
		}
	}
	if st := s.Stats(); st.Shared != shared {
		t.Errorf("%d charges shared budgets with room on the disk", st.Shared-shared)
	}
	s.table.audit(t)
}

// The log reports that memory runs short, and that it is used up, once each.
func TestAFullTableIsLoggedAt80PerCentAndAtTheBound(t *testing.T) {
	var output bytes.Buffer
	s := newStore(t, Options{Memory: MinMemory, Log: slog.New(slog.NewTextHandler(&output, nil))}, 64)
	logged := func() (nearly, full int) {
		return strings.Count(output.String(), "over 80 % full"), strings.Count(output.String(), "is full:")
	}
	for n := uint64(0); s.shared.Load() == 0; n++ {
		s.mustTake(t, charge(n, 5))
		used, _ := s.table.arena.state()
		if nearly, full := logged(); (nearly == 1) != (used*10 >= s.table.arena.limit*8) || full > 0 && s.shared.Load() == 0 {
			t.Fatalf("with %d of %d segments in use it logged:\n%s", used, s.table.arena.limit, output.String())
		}
	}
	for n := range uint64(1000) {
		s.mustTake(t, charge(1<<40|n, 5))
	}
	if nearly, full := logged(); nearly != 1 || full != 1 {
		t.Errorf("it logged:\n%s", output.String())
	}
}
