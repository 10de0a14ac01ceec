//go:build linux

package memstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// A watchedFile reports its uses, and those that come after it was handed over or closed.
type watchedFile struct {
	*mapping
	use  func()
	gone atomic.Bool
	late atomic.Int64
}

func (f *watchedFile) used() {
	if f.gone.Load() {
		f.late.Add(1)
	}
	if f.use != nil {
		f.use()
	}
}

func (f *watchedFile) publish(id uint32, s scope) { f.used(); f.mapping.publish(id, s) }
func (f *watchedFile) withdraw(id uint32)         { f.used(); f.mapping.withdraw(id) }
func (f *watchedFile) discard(id uint32) bool     { f.used(); return f.mapping.discard(id) }
func (f *watchedFile) restore(id uint32) error    { f.used(); return f.mapping.restore(id) }
func (f *watchedFile) extend(chunk int) error     { f.used(); return f.mapping.extend(chunk) }
func (f *watchedFile) detach() (*os.File, error)  { f.gone.Store(true); return f.mapping.detach() }

func watched(t *testing.T, o Options) (*Store, *watchedFile) {
	t.Helper()
	s := newStore(t, o, smallLines)
	f := &watchedFile{mapping: s.backing.(*mapping)}
	s.backing, s.table.arena.backing = f, f
	return s, f
}

// A rewrite that has replaced a segment still withdraws it from the file. Until it has done that,
// the segments in its place are locked, so that HandOver and Close wait for it.
func TestARewriteUsesTheFileOnlyWithItsSegmentsLocked(t *testing.T) {
	clock := storetest.StartManualClock()
	s, f := watched(t, Options{File: filepath.Join(t.TempDir(), "counters"), Memory: MinMemory, Now: clock.Now})
	uses := 0
	f.use = func() {
		uses++
		locked := 0
		for position := uint64(0); ; {
			seg := s.table.segmentAt(position)
			if seg.mu.TryLock() {
				seg.mu.Unlock()
			} else {
				locked++
			}
			if position = seg.scope.end(); position == 0 {
				break
			}
		}
		if locked == 0 {
			t.Error("the file is used, and no segment is locked")
		}
	}
	for range 3 { // the table grows, and shrinks
		for n := range uint64(2000) {
			s.mustTake(t, charge(n, 5))
		}
		clock.Advance(time.Minute)
		for n := range uint64(300) {
			s.mustTake(t, charge(n%5, 5))
			clock.Advance(time.Second)
		}
	}
	f.use = nil
	if uses < 100 {
		t.Errorf("the file was used %d times", uses)
	}
}

// Stores are handed over and closed while their tables are rewritten. After that nothing of them
// uses the file.
func TestNoRewriteUsesAFileThatIsAnothers(t *testing.T) {
	for round := range 50 {
		clock := storetest.StartManualClock()
		s, f := watched(t, Options{File: filepath.Join(t.TempDir(), "counters"), Memory: MinMemory, Now: clock.Now})
		var taking sync.WaitGroup
		var taken atomic.Int64
		for i := range uint64(4) {
			taking.Go(func() {
				var r weir.Receipt
				for n := i; ; n += 4 {
					if err := s.Take(context.Background(), []weir.Charge{charge(n, 5)}, &r); err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						return
					}
					if taken.Add(1)%1000 == 0 {
						clock.Advance(time.Minute)
					}
				}
			})
		}
		for taken.Load() < int64(200+20*round) && !t.Failed() {
			s.Stats()
		}
		if round%2 == 0 {
			state, err := s.HandOver()
			if err != nil {
				t.Fatal(err)
			}
			_ = state.Lock.Close()
		} else if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		taking.Wait()
		if n := f.late.Load(); n > 0 {
			t.Fatalf("round %d: the file was used %d times when it was another's", round, n)
		}
	}
}
