package poller

import (
	"net"
	"runtime"
	"testing"
)

// A socket returns a connection of the poller and its peer.
func socket(t *testing.T) (c *Conn, peer net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, ok := Take(dialed).(*Conn)
	if !ok {
		t.Fatal("the poller did not take the connection")
	}
	if peer, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); peer.Close() })
	return c, peer
}

// lookAgain waits until c's poller has looked once more, which other connections make it do.
func lookAgain(t *testing.T, c *Conn) {
	t.Helper()
	for done := c.poller.done.Load(); c.poller.done.Load() <= done+1; {
		if other, _ := socket(t); other.poller != c.poller {
			socket(t) // the next one has the other poller
		}
		runtime.Gosched()
	}
}

func TestAPollerKnowsThatNothingHasComeSinceAMark(t *testing.T) {
	c, peer := socket(t)
	lookAgain(t, c)
	mark := c.Mark()
	if c.QuietSince(mark) {
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
		{"its end has come", func() error { return peer.(*net.TCPConn).CloseWrite() }},
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
