package lease

import (
	"testing"
	"time"
)

func TestTheClockCountsWhatTheMachineSlept(t *testing.T) {
	var wall, monotonic, boot time.Duration
	kernel := 0
	c := &Clock{
		read: func() (time.Duration, time.Duration) { return wall, monotonic },
		boot: func() (time.Duration, bool) { kernel++; return boot, true },
	}
	pass := func(d time.Duration) { wall, monotonic, boot = wall+d, monotonic+d, boot+d }
	for _, step := range []struct {
		name   string
		do     func()
		kernel int // how often the kernel has been asked by then
	}{
		{"at first", func() {}, 1},
		{"awake", func() { pass(50 * time.Millisecond) }, 1},
		{"asleep", func() { wall += time.Hour; boot += time.Hour }, 2},
		{"awake again", func() { pass(50 * time.Millisecond) }, 2},
		{"the wall clock is set", func() { wall -= 24 * time.Hour }, 3},
		{"asleep, and the wall clock is set back", func() { boot += time.Hour; pass(anchorLasts) }, 4},
	} {
		step.do()
		if now, ok := c.Now(); !ok || now != boot {
			t.Errorf("%s: the clock shows %v (%t), want %v", step.name, now, ok, boot)
		}
		if kernel != step.kernel {
			t.Errorf("%s: the kernel was asked %d times, want %d", step.name, kernel, step.kernel)
		}
	}
}

func TestTheClockIsNotAnchoredByReadingsOfTwoMoments(t *testing.T) {
	var monotonic time.Duration
	c := &Clock{
		read: func() (time.Duration, time.Duration) { return monotonic, monotonic },
		boot: func() (time.Duration, bool) { monotonic += anchorError; return monotonic, true },
	}
	if now, ok := c.Now(); !ok || now != monotonic || c.anchor.Load() != nil {
		t.Errorf("the clock shows %v (%t) and has an anchor: %t", now, ok, c.anchor.Load() != nil)
	}
}

func TestWithoutAClockThatCountsSleepThereIsNoTime(t *testing.T) {
	c := NewClock()
	c.boot = func() (time.Duration, bool) { return 0, false }
	if now, ok := c.Now(); ok {
		t.Errorf("the clock shows %v", now)
	}
}

func BenchmarkSpendByTheClock(b *testing.B) {
	c, p := NewClock(), Pocket{}
	if _, ok := c.Now(); !ok {
		b.Fatal("this system has no clock that counts while the machine sleeps")
	}
	p.Fill(Lot{Window: Window{Reset: 1_800_000_060}, Units: 1 << 40, Limit: 1 << 40, Deadline: 1 << 62}, 0)
	b.ReportAllocs()
	for b.Loop() {
		now, known := c.Now()
		if _, _, ok := p.Spend(1, 1<<40, now); !known || !ok {
			b.Fatal("no unit")
		}
	}
}
