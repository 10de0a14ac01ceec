package poller

import (
	"runtime"
	"testing"
)

// lookAgain waits until c's poller has looked once more, which other connections make it do.
func lookAgain(t *testing.T, c *Conn) {
	t.Helper()
	for done := c.poller.done.Load(); c.poller.done.Load() <= done+1; {
		pair(t)
		runtime.Gosched()
	}
}

func TestAPollerKnowsThatNothingHasComeSinceAMark(t *testing.T) {
	near, peer := pair(t)
	c := near.(*Conn)
	lookAgain(t, c)
	mark := c.Mark()
	if later := (Mark{mark.reports, mark.look + 1<<40}); c.QuietSince(later) {
		t.Error("quiet, though the poller has not looked since")
	}
	lookAgain(t, c)
	if !c.QuietSince(mark) {
		t.Error("not quiet, though the poller has looked and nothing has come")
	}
	for _, happens := range []struct {
		what string
		do   func() error
	}{
		{"a byte has come", func() error { _, err := peer.Write([]byte("x")); return err }},
		{"another byte has come", func() error { _, err := peer.Write([]byte("y")); return err }},
		{"its end has come", func() error { return peer.(interface{ CloseWrite() error }).CloseWrite() }},
	} {
		mark = c.Mark()
		if err := happens.do(); err != nil {
			t.Fatal(err)
		}
		lookAgain(t, c)
		if c.QuietSince(mark) {
			t.Errorf("quiet, though %s", happens.what)
		}
	}
	if mark = c.Mark(); c.QuietSince(mark) {
		t.Error("quiet after the end")
	}
	if lookAgain(t, c); c.QuietSince(mark) {
		t.Error("quiet after the end, which is not reported again")
	}
}
