package headroom

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestTheHeadroomOfALittleAndOfMuchMemory(t *testing.T) {
	for _, test := range []struct {
		inUse, garbage uint64
		want           int
	}{
		{0, least, 100}, {1 << 20, least, 400}, {4 << 20, least, 400}, {8 << 20, least, 200}, {16 << 20, least, 100}, {20 << 20, least, 80},
		{32 << 20, least, 50}, {64 << 20, least, 40}, {1 << 30, least, 40}, {1 << 40, least, 40},
		{0, 64 << 20, 100}, {1 << 20, 64 << 20, 800}, {4 << 20, 64 << 20, 800}, {16 << 20, 64 << 20, 400}, {64 << 20, 64 << 20, 100}, {1 << 30, 64 << 20, 40},
	} {
		if got := percentFor(test.inUse, test.garbage, time.Second); got != test.want {
			t.Errorf("%d MiB in use, %d of garbage: %d %%, want %d", test.inUse>>20, test.garbage>>20, got, test.want)
		}
		if got := percentFor(test.inUse, test.garbage, 2*time.Minute); got != min(test.want, 100) {
			t.Errorf("%d MiB in use, and idle: %d %%, want %d", test.inUse>>20, got, min(test.want, 100))
		}
	}
}

func TestTheGarbageOfATimeIsBounded(t *testing.T) {
	for _, test := range []struct {
		inUse, allocated uint64
		since            time.Duration
		want             uint64
	}{
		{0, 0, time.Second, least}, {0, 8 << 20, time.Second, least}, {0, 16 << 20, time.Second, 32 << 20}, {0, 16 << 20, 2 * time.Second, least},
		{4 << 20, 16 << 20, 100 * time.Millisecond, 76 << 20}, {4 << 20, 1 << 40, time.Second, 76 << 20}, {48 << 20, 1 << 40, time.Second, 32 << 20},
		{80 << 20, 1 << 40, time.Second, least}, {1 << 40, 1 << 40, time.Second, least},
		{0, 0, 0, least}, {0, 1 << 20, 0, busiest}, {0, 1 << 20, -time.Second, busiest},
	} {
		if got := garbageFor(test.inUse, test.allocated, test.since); got != test.want {
			t.Errorf("%d MiB in use, %d in %v: %d MiB, want %d", test.inUse>>20, test.allocated>>20, test.since, got>>20, test.want>>20)
		}
	}
}

// Requests that leave garbage are given more room for it; connections, which stay, are not.
func TestOnlyGarbageIsGivenMoreRoom(t *testing.T) {
	t.Cleanup(func() { debug.SetGCPercent(100) })
	t.Setenv("GOGC", "")
	k := newKeeper()
	runtime.GC()
	k.set()
	var held [][]byte
	for range 64 {
		held = append(held, make([]byte, 1<<20))
	}
	runtime.GC()
	if k.set(); k.percent > 100 {
		t.Errorf("with 64 MiB more in use it is %d %%", k.percent)
	}
	runtime.KeepAlive(held)
	held = nil
	runtime.GC()
	k.last = time.Now()
	k.set() // 64 MiB fewer in use
	for range 64 {
		sink = make([]byte, 1<<20)
	}
	sink = nil
	runtime.GC()
	if k.set(); k.percent <= 400 {
		t.Errorf("after 64 MiB of garbage in a moment it is %d %%", k.percent)
	}
}

// sink keeps an allocation on the heap.
var sink []byte

func gogc() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// Each collection sets it anew.
func TestTheHeadroomFollowsWhatIsInUse(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Cleanup(func() { debug.SetGCPercent(100) })
	Keep()
	// until collects until the percentage is as wanted; the cleanup runs soon after a collection.
	until := func(what string, is func(uint64) bool) {
		t.Helper()
		for range 10_000 {
			runtime.GC()
			if is(gogc()) {
				return
			}
			runtime.Gosched()
		}
		t.Fatalf("with %s it is %d %%", what, gogc())
	}
	until("little in use", func(p uint64) bool { return p > 100 })
	held := make([]byte, 64<<20)
	until("64 MiB in use", func(p uint64) bool { return p == percent })
	runtime.KeepAlive(held)
	held = nil
	until("little in use again", func(p uint64) bool { return p > 100 })
}

func TestAnOperatorsHeadroomIsLeft(t *testing.T) {
	for _, set := range []string{"100", "off"} {
		if t.Setenv("GOGC", set); newKeeper() != nil {
			t.Errorf("GOGC=%s is not left alone", set)
		}
	}
}
