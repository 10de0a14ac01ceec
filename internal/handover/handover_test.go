//go:build linux

package handover

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

// pair returns both sides of a hand-over, without a process between them. The next process has
// ended once kill was called.
func pair(t *testing.T) (*Next, *Previous) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	one, err := linkOf(os.NewFile(uintptr(fds[0]), "next"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := linkOf(os.NewFile(uintptr(fds[1]), "previous"))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	end := sync.OnceFunc(func() {
		other.close()
		close(ended)
	})
	n := &Next{link: one, pid: 1 << 30, ended: ended, how: "killed", kill: func() error { end(); return nil }}
	n.stop = func() error { t.Error("the next process is to drain"); return nil }
	return n, &Previous{link: other}
}

// handOver hands the counts of one process over to another.
func handOver(t *testing.T, from, to *Counts) {
	t.Helper()
	next, previous := pair(t)
	continued := make(chan error, 1)
	go func() { continued <- previous.Continue(to) }()
	var main []int
	err := next.AwaitOpen(t.Context())
	if err == nil {
		err = next.Give(t.Context(), from, func(pid int) { main = append(main, pid) })
	}
	if err := errors.Join(err, <-continued); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(main, []int{next.pid}) {
		t.Errorf("reported as main processes: %v, want %d", main, next.pid)
	}
}

func options(t *testing.T) (memstore.Options, *storetest.ManualClock) {
	clock := storetest.StartManualClock()
	return memstore.Options{
		Memory: 64 << 20, File: filepath.Join(t.TempDir(), "counters"), Now: clock.Now, Log: slog.New(slog.DiscardHandler),
	}, clock
}

// process returns the counts of one process, which are closed at the end.
func process(t *testing.T, o memstore.Options) *Counts {
	t.Helper()
	c := New(o)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func opened(t *testing.T, o memstore.Options) *Counts {
	t.Helper()
	c := process(t, o)
	if err := c.Open(nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func charge(kind string, limit, per, cost int64) weir.Charge {
	key := binary.BigEndian.AppendUint32(append([]byte{byte(len(kind))}, kind...), uint32(per))
	return weir.Charge{Key: key, Scope: len(key), Subject: len(key), Limit: limit, Per: per, Cost: cost}
}

func slot(limit int64) weir.Charge {
	c := charge("slots", limit, 0, 1)
	c.Held = true
	return c
}

func take(t *testing.T, c *Counts, charges ...weir.Charge) (r weir.Receipt) {
	t.Helper()
	if err := c.Take(t.Context(), charges, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// spent reads how many units or slots are taken.
func spent(t *testing.T, c *Counts, of weir.Charge) int64 {
	t.Helper()
	of.Cost = 0
	return take(t, c, of).Used[0].Count
}

// Four processes follow each other, while every one of them still decides, reserves, settles and
// holds slots: exactly the limit is admitted, and no slot is lost.
func TestEveryProcessOfAChainCountsToTheUnit(t *testing.T) {
	const limit, callers = 6000, 3
	o, _ := options(t)
	all := []*Counts{opened(t, o)}
	var admitted, used atomic.Int64
	var ended atomic.Bool
	var taking sync.WaitGroup
	minute, hour, slots := charge("minute", limit, 60, 1), charge("hour", 1<<30, 3600, 3), slot(1<<20)
	serve := func(c *Counts) {
		for range callers {
			taking.Go(func() {
				var r weir.Receipt
				for !ended.Load() {
					if err := c.Take(context.Background(), []weir.Charge{minute, hour, slots}, &r); err != nil {
						t.Errorf("take: %v", err)
						return
					}
					if !r.Allowed {
						return
					}
					admitted.Add(1)
					used.Add(2)
					changes := []weir.Change{{Charge: hour, Reset: r.Used[1].Reset, Units: -1}, {Charge: slots, Units: -1}}
					if err := c.Settle(context.Background(), &r.Ticket, changes); err != nil || !changes[0].Done || !changes[1].Done {
						t.Errorf("settle: %+v, %v", changes, err)
						return
					}
				}
			})
		}
	}
	serve(all[0])
	for n := range int64(3) {
		for admitted.Load() < (n+1)*limit/8 && !t.Failed() {
			runtime.Gosched()
		}
		next := process(t, o)
		handOver(t, all[n], next)
		serve(next)
		all = append(all, next)
	}
	taking.Wait()
	ended.Store(true)
	if n := admitted.Load(); n != limit {
		t.Errorf("%d requests were admitted, want %d", n, limit)
	}
	for i, c := range all {
		if m, h, s := spent(t, c, minute), spent(t, c, hour), spent(t, c, slots); m != limit || h != used.Load() || s != 0 {
			t.Errorf("process %d reads %d of the minute, %d of the hour and %d slots; want %d, %d and 0", i, m, h, s, limit, used.Load())
		}
	}
}

// A process that ends gives its slots back, wherever the counts are by then, and no other ones.
func TestTheSlotsOfAProcessThatEndsAreFree(t *testing.T) {
	o, _ := options(t)
	first, second, third := opened(t, o), process(t, o), process(t, o)
	slots := slot(10)
	take(t, first, slots)
	handOver(t, first, second)
	take(t, first, slots)
	take(t, second, slots)
	handOver(t, second, third)
	take(t, first, slots)
	take(t, third, slots)
	for _, end := range []struct {
		c    *Counts
		held int64 // slots afterwards
	}{{first, 2}, {second, 1}} {
		if err := end.c.Close(); err != nil {
			t.Error(err)
		}
		late := time.Now().Add(time.Minute)
		// It is noticed soon after the end.
		for spent(t, third, slots) != end.held && time.Now().Before(late) {
			runtime.Gosched()
		}
		if n := spent(t, third, slots); n != end.held {
			t.Errorf("%d slots are held, want %d", n, end.held)
		}
	}
}

// A next process that fails leaves the counts, the slots and the guests as they were.
func TestCountsAreTakenBackFromAProcessThatFails(t *testing.T) {
	for name, fail := range map[string]func(*Previous){
		"before it is open": func(p *Previous) {},
		"with the counts": func(p *Previous) {
			if _, err := p.ask(); err != nil {
				t.Error(err)
			}
		},
		"with something else": func(p *Previous) {
			if _, err := p.ask(); err != nil {
				t.Error(err)
			}
			_ = p.link.send(step{Op: "odd"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := options(t)
			before, now := opened(t, o), process(t, o)
			minute, slots := charge("minute", 10, 60, 1), slot(10)
			take(t, before, minute, slots)
			handOver(t, before, now)
			take(t, now, minute, slots)

			next, previous := pair(t)
			go func() {
				fail(previous)
				_ = next.kill()
			}()
			err := next.AwaitOpen(t.Context())
			if err == nil {
				err = next.Give(t.Context(), now, func(int) { t.Error("the next process is said to decide") })
			}
			if err == nil || errors.Is(err, ErrNoCounts) {
				t.Fatalf("a process that failed: %v", err)
			}
			take(t, now, minute, slots)
			take(t, before, minute, slots)
			for _, c := range []*Counts{before, now} {
				if m, s := spent(t, c, minute), spent(t, c, slots); m != 4 || s != 4 {
					t.Errorf("%d of the minute and %d slots are taken, want 4 and 4", m, s)
				}
			}
			third := process(t, o)
			handOver(t, now, third) // the next attempt
			if m, s := spent(t, before, minute), spent(t, third, slots); m != 4 || s != 4 {
				t.Errorf("after another hand-over %d of the minute and %d slots are taken, want 4 and 4", m, s)
			}
		})
	}
}

// If the process that has the counts is killed, the others refuse, and give nothing back.
func TestAProcessWithoutAnAnswerRefuses(t *testing.T) {
	o, _ := options(t)
	old, now := opened(t, o), process(t, o)
	minute := charge("minute", 10, 60, 5)
	reserved := take(t, old, minute)
	handOver(t, old, now)
	if err := now.Close(); err != nil {
		t.Fatal(err)
	}
	var r weir.Receipt
	if err := old.Take(t.Context(), []weir.Charge{minute}, &r); err == nil {
		t.Error("a take was answered by nobody")
	}
	changes := []weir.Change{{Charge: minute, Reset: reserved.Used[0].Reset, Units: -4}}
	if err := old.Settle(t.Context(), &reserved.Ticket, changes); err == nil || changes[0].Done || !changes[0].Lost {
		t.Errorf("a settlement that nobody answered: %+v, %v", changes, err)
	}
	if n := spent(t, opened(t, o), minute); n != 5 {
		t.Errorf("%d units are counted, want the 5 that were reserved", n)
	}
}

// A process that is not given the counts waits for its predecessor's word, unless that has ended.
func TestAProcessDecidesAfterItsPredecessor(t *testing.T) {
	o, _ := options(t)
	old, now := opened(t, o), process(t, o)
	take(t, old, charge("minute", 10, 60, 3))
	offer, err := old.Release()
	if err != nil {
		t.Fatal(err)
	}
	next, previous := pair(t)
	continued := make(chan error, 1)
	go func() { continued <- previous.Continue(now) }()
	if err := next.AwaitOpen(t.Context()); err != nil {
		t.Fatal(err)
	}
	var held *memstore.InUseError
	if err := New(o).Open(nil); !errors.As(err, &held) {
		t.Errorf("a third process while the counts are on their way: %v", err)
	}
	for _, err := range []error{next.link.send(step{Op: opOffer, Counts: true}), next.sendOffer(offer), next.await(opHave)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := offer.State.Lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := New(o).Open(nil); !errors.As(err, &held) || held.PID != os.Getpid() {
		t.Errorf("a third process while the next one has the counts: %v", err)
	}
	select {
	case err := <-continued:
		t.Fatalf("it decides already, %v", err)
	default:
	}
	next.link.close() // as a process that is killed
	if err := <-continued; err != nil {
		t.Fatal(err)
	}
	if n := spent(t, now, charge("minute", 10, 60, 1)); n != 3 {
		t.Errorf("%d units are counted, want 3", n)
	}
}

// What is not Weir's is not taken for it.
func TestOddVariablesAreNoHandOver(t *testing.T) {
	for _, text := range []string{"", `{"PID":1,"Sockets":[]}`} {
		t.Setenv(variable, text)
		if p, err := From(); p != nil || err != nil {
			t.Errorf("%q: %v, %v", text, p, err)
		}
	}
	t.Setenv(variable, "odd")
	if _, err := From(); err == nil || !strings.Contains(err.Error(), variable) {
		t.Errorf("odd: %v", err)
	}
}

// The connection of a process that is killed can end before its files are unlocked.
func TestTheCountsOfAKilledProcessAreAwaited(t *testing.T) {
	o, _ := options(t)
	old, now := opened(t, o), process(t, o)
	take(t, old, charge("minute", 10, 60, 3))
	next, previous := pair(t)
	continued := make(chan error, 1)
	next.link.close()
	go func() { continued <- previous.Continue(now) }()
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-continued; err != nil {
		t.Fatal(err)
	}
	if n := spent(t, now, charge("minute", 10, 60, 1)); n != 3 {
		t.Errorf("%d units are counted, want 3", n)
	}
}
