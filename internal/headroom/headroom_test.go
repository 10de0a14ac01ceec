package headroom

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestTheHeadroomOfALittleAndOfMuchMemory(t *testing.T) {
	for inUse, want := range map[uint64]int{
		0: 100, 1 << 20: 400, 4 << 20: 400, 8 << 20: 200, 16 << 20: 100, 20 << 20: 80, 32 << 20: 60, 1 << 30: 60, 1 << 40: 60,
	} {
		if got := percentFor(inUse, time.Second); got != want {
			t.Errorf("%d MiB in use: %d %%, want %d", inUse>>20, got, want)
		}
		if got := percentFor(inUse, 2*time.Minute); got != min(want, 100) {
			t.Errorf("%d MiB in use, and idle: %d %%, want %d", inUse>>20, got, min(want, 100))
		}
	}
}

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
