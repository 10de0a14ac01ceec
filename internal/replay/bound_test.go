//go:build !race

// Millions of callers in one goroutine: the race detector would take fifty times as long, and finds
// nothing here.

package replay

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/accesslog"
)

// crowd sends n requests of new callers through a replay, ten a second. Every 100th comes three
// times, so that a limit of two refuses it something.
func crowd(t testing.TB, r *Replay, n int) (touched int) {
	var l accesslog.Line
	l.Method, l.Target = []byte("GET"), []byte("/")
	peer := make([]byte, 0, 16)
	for i := range n {
		peer = fmt.Appendf(peer[:0], "%d.%d.%d.%d", 1+i>>24, i>>16&255, i>>8&255, i&255)
		l.Time, l.Peer = noon*1e9+int64(i)*1e8, peer
		times := 1
		if i%100 == 0 {
			times, touched = 3, touched+1
		}
		for range times {
			if err := r.Add(&l); err != nil {
				t.Fatal(err)
			}
		}
	}
	return touched
}

// near reports whether got estimates want to six standard errors of 2^precision registers: each
// run hashes with another seed, and a billionth of them is farther off.
func near(got Count, want, precision int) bool {
	off := 6 * 1.04 / math.Sqrt(float64(int(1)<<precision))
	return got.Estimated && math.Abs(float64(got.N)-float64(want)) <= off*float64(want)
}

func TestMoreCallersThanFitAreEstimated(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	const n = 1_000_000
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "2 per minute by ip")), Memory: MinMemory, Touch: 0.02})
	touched := crowd(t, r, n)
	o := report(t, r).Policy
	w := o.Limiters[0].Windows[0]
	if o.Requests != n+2*int64(touched) || o.Refused != int64(touched) || o.Shared != 0 {
		t.Errorf("%d requests, %d refused, %d shared", o.Requests, o.Refused, o.Shared)
	}
	if !near(o.Callers, n, 14) || !near(o.Touched, touched, 14) || !near(w.Callers, n, 14) || !near(w.Touched, touched, 14) || w.Forgotten != 0 || w.Peak != 3 {
		t.Errorf("addresses %+v, %+v; window %+v; want %d, %d", o.Callers, o.Touched, w, n, touched)
	}
	// One in 100 has a peak of 3, the others of 1: two percent may be touched, so that 1 suffices.
	if got := w.Recommend; got == nil || got.Limit != 1 || !near(got.Touches, touched, peakPrecision) || got.Share > 0.02 {
		t.Errorf("recommended: %+v", got)
	}
}

func TestAnEstimatedShareRoundsOnTheSafeSide(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "2 per minute by ip")), Memory: MinMemory, Touch: 0.01})
	crowd(t, r, 400_000)
	if got := report(t, r).Policy.Limiters[0].Windows[0].Recommend; got == nil || got.Limit != 3 || got.Touches.N != 0 {
		t.Errorf("recommended: %+v: 1 %% may be a little more or less, and so counts as too many", got)
	}
}

func TestCallersThatAreForgottenTooEarlyAreReported(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "2 per day by ip")), Memory: MinMemory, Touch: 0.02})
	crowd(t, r, 300_000) // 30 000 s: no window ends
	o := report(t, r).Policy
	if w := o.Limiters[0].Windows[0]; w.Forgotten == 0 || w.Recommend != nil || !w.Callers.Estimated {
		t.Errorf("%+v", w)
	}
}

func TestBudgetsThatWereSharedAreReported(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	for _, paced := range []bool{false, true} {
		r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "2 per day by ip")), Memory: MinMemory, Paced: paced})
		crowd(t, r, 360_000)
		if o := report(t, r).Policy; o.Shared == 0 {
			t.Errorf("paced %v: 360 000 live budgets in 7 MiB, and none is shared", paced)
		}
	}
}

func TestMemoryDoesNotGrowWithTheLog(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	heap := func(n int) int64 {
		r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "2 per minute by ip", "30 per hour by ip+agent")), Memory: MinMemory, Touch: 0.02})
		crowd(t, r, n)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		store := r.lanes[0].store.Stats().Bytes
		if o := report(t, r).Policy; o.Shared > 0 {
			t.Errorf("%d budgets were shared", o.Shared)
		}
		return int64(m.HeapAlloc) + store
	}
	some, many := heap(200_000), heap(600_000)
	if many > some+some/10 || many > MinMemory+8<<20 {
		t.Errorf("%d bytes after 200 000 callers, %d after three times as many", some, many)
	}
}

// BenchmarkTenMillionCallers measures the memory for a log of ten million callers, of which few are
// active at a time.
func BenchmarkTenMillionCallers(b *testing.B) {
	for b.Loop() {
		r := start(b, Options{Policy: policyOf(limiterOf(b, "all", "2 per minute by ip")), Touch: 0.001})
		crowd(b, r, 10_000_000)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		store := r.lanes[0].store.Stats().Bytes
		o := report(b, r).Policy
		b.ReportMetric(float64(int64(m.HeapAlloc)+store)/(1<<20), "MiB")
		b.ReportMetric(float64(o.Callers.N), "callers")
		b.ReportMetric(float64(o.Shared), "shared")
	}
}

func TestEntriesAreFoundWhereTheyWerePut(t *testing.T) {
	c := callers{pool: newPool(64 << 20)}
	const n = 300_000
	hash := func(i int) uint64 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(i))
		x := binary.LittleEndian.Uint64(b[:]) * 0x9e3779b97f4a7c15
		return x ^ x>>29*0xbf58476d1ce4e5b9
	}
	for i := range n {
		e := c.at(hash(i), 1)
		if e.requests != 0 {
			t.Fatalf("the %dth is there already", i)
		}
		e.requests = uint32(i + 1)
		if i%3 == 0 {
			c.mark(e, touched)
		}
	}
	for i := range n {
		if e := c.lookUp(hash(i)); e == nil || e.requests != uint32(i+1) || e.has(touched) != (i%3 == 0) {
			t.Fatalf("the %dth: %+v", i, e)
		}
	}
	if c.lookUp(hash(n)) != nil || c.count(known) != (Count{N: n}) || c.count(touched) != (Count{N: n / 3}) {
		t.Errorf("%+v, %+v", c.count(known), c.count(touched))
	}
	all := 0
	c.each(func(*entry) { all++ })
	if all != n {
		t.Errorf("%d entries", all)
	}
	if used := 64<<20 - c.pool.left; used > n*entrySize*2 {
		t.Errorf("%d bytes for %d entries", used, n)
	}
}

// A caller with a million waiting requests costs little more than serving them.
func TestAMillionThatWaitAreOneLine(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "100000 per minute by ip")), Paced: true, Patience: time.Hour})
	for range 1_000_000 {
		send(t, r, 0, "192.0.2.7")
	}
	if n := len(r.lanes[0].waiting.lines); n != 1 {
		t.Errorf("%d lines", n)
	}
	o := report(t, r).Policy
	if d := o.Delay; d.Delayed != 900_000 || d.GaveUp+d.NoRoom != 0 || d.Max != 540 || d.Mean != 300 {
		t.Errorf("%+v", d)
	}
}

func TestRequestsWithoutRoomToWaitAreCounted(t *testing.T) {
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "1 per day by ip")), Paced: true, Memory: MinMemory, Patience: maxPatience})
	room := r.lanes[0].waiting.left
	for range 300_000 {
		send(t, r, 0, "192.0.2.7")
	}
	w := r.lanes[0].waiting
	if w.left < 0 || w.left >= itemBytes || int64(cap(w.order[0].items))*16 > room*5/4 {
		t.Errorf("%d of %d bytes are left, %d items", w.left, room, cap(w.order[0].items))
	}
	fit := (room - lineBytes) / itemBytes
	if d := w.delay; d.noRoom != 300_000-1-fit {
		t.Errorf("no room for %d, and %d fit", d.noRoom, fit)
	}
}
