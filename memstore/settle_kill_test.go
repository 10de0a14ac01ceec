//go:build linux && !race

// The children need no race detector; see kill_test.go.

package memstore_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

var settlements = flag.Int("settlements", 300_000, "how many takes are settled by processes that are killed in between")

const (
	settlers    = 64 // goroutines of each process
	settleKills = 10
	reserved    = 5 // units of each take
)

// A job is the takes of one goroutine. Which windows take n charges, and what it has used in the
// end, follow from n.
type job struct{ round, who uint64 }

func (j job) draw(n uint64) uint64 {
	x := (n<<16 | j.round<<8 | j.who) * 0x9E3779B97F4A7C15
	return (x ^ x>>29) * 0xBF58476D1CE4E5B9 >> 33
}

// used returns the units that take n has used: from none to one more than were reserved.
func (j job) used(n uint64) int64 { return int64(j.draw(n) % (reserved + 2)) }

// charges returns what take n charges: the goroutine's own window, the common one, or both.
func (j job) charges(n uint64) (own, common bool) {
	kind := j.draw(n) >> 8 % 3
	return kind != 0, kind != 1
}

// progress is, for each goroutine, twice the number of takes that it has settled, and one more if
// the next take has returned. It is shared with a process that is killed.
type progress [settlers]struct {
	atomic.Uint64
	_ [56]byte
}

func openProgress(t *testing.T, path string) *progress {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := int(unsafe.Sizeof(progress{}))
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(b) })
	return (*progress)(unsafe.Pointer(&b[0]))
}

func ownWindow(who uint64) weir.Charge {
	c := charge("own", weir.MaxLimit, week, fmt.Sprint("settler ", who))
	c.Cost = reserved
	return c
}

func commonWindow() weir.Charge {
	c := charge("common", weir.MaxLimit, week, "all")
	c.Cost = reserved
	return c
}

// Processes take and settle, from many goroutines, and are killed. What is counted is what was
// used, and for the takes that a kill interrupted, what was reserved, used or nothing.
func TestKillsAmongSettlementsLoseAndGiveNoUnit(t *testing.T) {
	if e, _, ok := sent(t); ok {
		settleUntilKilled(t, e)
		return
	}
	e := errand{Run: "settle", File: filepath.Join(t.TempDir(), "counters"), Memory: memstore.MinMemory, Now: 1_800_000_000, Settlements: *settlements / settleKills}
	var own [settlers]int64
	var common, done int64
	interrupted := 0
	for e.Round = range settleKills {
		at := openProgress(t, e.progress())
		for i := range at {
			at[i].Store(0)
		}
		c := start(t, e)
		c.end()
		s, err := memstore.New(e.options())
		if err != nil {
			t.Fatal(err)
		}
		low, high := common, common
		for who := range uint64(settlers) {
			j, p := job{uint64(e.Round), who}, at[who].Load()
			settled := p / 2
			done += int64(settled)
			for n := range settled {
				byOwn, byCommon := j.charges(n)
				if byOwn {
					own[who] += j.used(n)
				}
				if byCommon {
					low, high = low+j.used(n), high+j.used(n)
				}
			}
			first, second := j.interrupted(p)
			byOwn, byCommon := j.charges(settled)
			if got := unitsOf(t, s, ownWindow(who)); byOwn && got == own[who]+first {
				own[who] += first
			} else if byOwn && got == own[who]+second {
				own[who] += second
			} else if byOwn || got != own[who] {
				t.Errorf("round %d: goroutine %d has %d units; %d were used, and its last take has %d or %d", e.Round, who, got, own[who], first, second)
			}
			if byCommon {
				low, high = low+min(first, second), high+max(first, second)
				interrupted++
			}
		}
		if common = unitsOf(t, s, commonWindow()); common < low || common > high {
			t.Errorf("round %d: all have %d units together, want %d to %d", e.Round, common, low, high)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d takes were settled by %d processes; %d takes of the common window were interrupted", done, settleKills, interrupted)
	if done < int64(*settlements)/2 {
		t.Errorf("only %d takes were settled of %d", done, *settlements)
	}
}

// unitsOf is count for a window that may be open and empty.
func unitsOf(t *testing.T, s *memstore.Store, c weir.Charge) int64 {
	t.Helper()
	c.Cost = 0
	var r weir.Receipt
	if err := s.Take(t.Context(), []weir.Charge{c}, &r); err != nil {
		t.Fatal(err)
	}
	return r.Used[0].Count
}

// interrupted returns the units that a kill at progress p may have left of the last take: of one
// that has not returned, none or all, and of one that has, what was reserved or what was used.
func (j job) interrupted(p uint64) (first, second int64) {
	if p%2 == 0 {
		return 0, reserved
	}
	return reserved, j.used(p / 2)
}

// settleUntilKilled takes and settles until the process kills itself, in the midst of that.
func settleUntilKilled(t *testing.T, e errand) {
	s, err := memstore.New(e.options())
	if err != nil {
		t.Fatal(err)
	}
	at := openProgress(t, e.progress())
	var done atomic.Int64
	var all sync.WaitGroup
	for who := range uint64(settlers) {
		all.Go(func() {
			j := job{uint64(e.Round), who}
			own, common := ownWindow(who), commonWindow()
			for n := uint64(0); ; n++ {
				at[who].Store(2 * n)
				settleOne(t, s, j, n, own, common, func() { at[who].Store(2*n + 1) })
				if done.Add(1) == int64(e.Settlements) {
					if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
}

func settleOne(t *testing.T, s *memstore.Store, j job, n uint64, own, common weir.Charge, taken func()) {
	byOwn, byCommon := j.charges(n)
	in := []weir.Charge{own, common}
	switch {
	case !byCommon:
		in = in[:1]
	case !byOwn:
		in = in[1:]
	case n%2 == 0:
		in[0], in[1] = in[1], in[0]
	}
	var r weir.Receipt
	if err := s.Take(context.Background(), in, &r); err != nil || !r.Allowed {
		t.Errorf("take: %+v, %v", r, err)
	}
	taken()
	var changes [2]weir.Change
	for i, c := range in {
		changes[i] = weir.Change{Charge: c, Reset: r.Used[i].Reset, Units: j.used(n) - reserved}
	}
	if err := s.Settle(context.Background(), &r.Ticket, changes[:len(in)]); err != nil {
		t.Errorf("settle: %v", err)
	}
	for _, c := range changes[:len(in)] {
		if c.Units != 0 && !c.Done {
			t.Errorf("it was not settled: %+v", c)
		}
	}
}
