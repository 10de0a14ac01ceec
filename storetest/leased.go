package storetest

import (
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// A leasing is a store that charges units before it gives them out.
type leasing struct {
	*harness
	leaser weir.Leaser
}

// leased returns a test that only a weir.Leaser needs to pass.
func leased(run func(*leasing)) func(*harness) {
	return func(h *harness) {
		if l, ok := h.store.(weir.Leaser); ok {
			h.settles = true // a store may keep a window to which it gave units back
			run(&leasing{h, l})
		}
	}
}

// pocketed returns a charge that leased units may serve while the store does not answer.
func pocketed(who string, limit int64, per time.Duration, cost int64) weir.Charge {
	c := charge(who, limit, per, cost)
	c.OnFailure = weir.FailPocket | weir.FailDeny
	return c
}

// spends takes from leased units, and reports whether it has.
func (l *leasing) spends(charges ...weir.Charge) bool {
	l.Helper()
	var r weir.Receipt
	if !l.leaser.TakeLeased(charges, &r) {
		return false
	}
	if !r.Allowed || !r.Leased {
		l.Errorf("served from leased units: allowed %t, leased %t", r.Allowed, r.Leased)
	}
	if err := coherent(charges, r, true); err != nil {
		l.Errorf("leased units of %+v have served %+v: %v", charges, r, err)
	}
	return true
}

// leasedIsCharged spends a window in both ways at once. Together they get all of it, and no more.
func leasedIsCharged(l *leasing) {
	const limit = 300
	one := pocketed("a", limit, time.Hour, 1)
	var admitted atomic.Int64
	together(8, func(i int) {
		for {
			// half of the callers prefer what is leased
			if i%2 == 0 && l.spends(one) {
				admitted.Add(1)
			} else if l.take(one).Allowed {
				admitted.Add(1)
			} else {
				return
			}
		}
	})
	if n := admitted.Load(); n != limit || l.spends(one) {
		l.Errorf("%d units of %d were admitted; then more are leased: %t", n, limit, l.spends(one))
	}
}

// leasedSpendsOnlyWhatItMay asks for units that none may get. That spends nothing.
func leasedSpendsOnlyWhatItMay(l *leasing) {
	one, other := pocketed("a", 100, time.Hour, 1), pocketed("b", 100, time.Hour, 1)
	for range 5 {
		l.take(one)
		l.take(charge("a", 100, time.Minute, 1))
	}
	before := l.take(pocketed("a", 100, time.Hour, 0)).Used[0]
	waits := charge("a", 100, time.Minute, 1) // by itself it counts in this process
	tooMany := pocketed("a", 100, time.Hour, 96)
	for what, all := range map[string]charges{
		"without FailPocket":            {waits},
		"more than is left":             {tooMany},
		"of a window that is not open":  {other},
		"of two, of which one is not":   {one, other},
		"one of two without FailPocket": {one, waits},
	} {
		if l.spends(all...) {
			l.Errorf("%s: leased units have served it", what)
		}
	}
	if after := l.take(pocketed("a", 100, time.Hour, 0)).Used[0]; after != before {
		l.Errorf("the window is %+v after that, and was %+v", after, before)
	}
}

// leasedEndsWithItsWindow looks for units of a window that has ended, and of one that was reset.
func leasedEndsWithItsWindow(l *leasing) {
	one := pocketed("a", 100, time.Minute, 1)
	open := func() {
		l.Helper()
		for range 5 {
			l.take(one)
		}
	}
	open()
	l.advance(time.Minute)
	if l.spends(one) {
		l.Error("units of a window that has ended have served a take")
	}
	if k, ok := l.store.(weir.Keeper); ok {
		open()
		if err := k.Reset(l.Context(), charges{one}); err != nil {
			l.Fatal(err)
		}
		if l.spends(one) {
			l.Error("units of a window that was reset have served a take")
		}
	}
	if r := l.take(one); !r.Allowed || r.Used[0].Count != 1 {
		l.Errorf("the next window begins with %+v", r)
	}
}
