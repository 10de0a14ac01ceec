package upstream

import (
	"context"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestStatesDescribeEachAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{fails: map[string]error{"b:80": syscall.ECONNREFUSED}}
		p := poolOf(t, n, io.Discard, "a:80", "b:80")
		began := time.Now().Round(0)
		back := began.Add(6 * firstPause)
		want := func(when string, a, b State) {
			t.Helper()
			a.Address.Host, b.Address.Host = "a:80", "b:80"
			got := p.States()
			for i := range got {
				got[i].Since = got[i].Since.Round(0) // without the monotonic clock
			}
			if len(got) != 2 || got[0] != a || got[1] != b {
				t.Errorf("%s: %+v, want %+v and %+v", when, got, a, b)
			}
		}
		want("before anything", State{Well: true}, State{Well: true})
		// b refuses the second, which then goes to a.
		one, two, three := take(t, p), take(t, p), take(t, p)
		want("three exchanges", State{Well: true, Busy: 3}, State{Since: began, Failures: 1})
		one.Keep(time.Now())
		two.Keep(time.Now())
		want("two of them over", State{Well: true, Busy: 1, Kept: 2}, State{Since: began, Failures: 1})

		for range 3 { // b's pause is not over: it is not probed
			take(t, p).Keep(time.Now())
		}
		want("while b is left alone", State{Well: true, Busy: 1, Kept: 2}, State{Since: began, Failures: 1})
		time.Sleep(2 * firstPause)
		four := take(t, p) // tries b first, and fails
		want("when it was tried again", State{Well: true, Busy: 2, Kept: 1}, State{Since: began, Failures: 2})
		four.Keep(time.Now())

		n.set("b:80", nil)
		time.Sleep(4 * firstPause)
		four = take(t, p)
		want("while it is tried", State{Well: true, Busy: 1, Kept: 2}, State{Since: began, Busy: 1, Failures: 2})
		four.Answered()
		want("when it has answered", State{Well: true, Busy: 1, Kept: 2}, State{Well: true, Since: back, Busy: 1, Failures: 2})
		four.Drop(nil)
		three.Drop(io.EOF) // began before two others were answered: it proves nothing about a
		want("at the end", State{Well: true, Kept: 2}, State{Well: true, Since: back, Failures: 2})
	})
}

// A scrape may come at any time.
func TestStatesCanBeReadConcurrently(t *testing.T) {
	p := poolOf(t, new(network), io.Discard, "a:80")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if s := p.States()[0]; s.Busy < 0 || s.Busy > 1 || s.Busy+s.Kept > 1 || !s.Well {
				t.Errorf("one exchange after the other: %+v", s)
				return
			}
		}
	}()
	for range 2000 {
		take(t, p).Keep(time.Now())
	}
	cancel()
	<-done
}
