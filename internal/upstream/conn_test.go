package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestAKeptConnectionIsCheckedForItsEnd(t *testing.T) {
	for name, done := range map[string]func(net.Conn) error{
		"closed":  func(c net.Conn) error { return c.Close() },
		"reset":   func(c net.Conn) error { return errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close()) },
		"ended":   func(c net.Conn) error { return c.(*net.TCPConn).CloseWrite() },
		"unasked": func(c net.Conn) error { _, err := c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, nil)
			p := open(t, options(Address{Host: l.Addr().String()}))
			c := take(t, p)
			far := <-l.accepted
			defer far.Close()
			if !c.quiet() {
				t.Fatal("a connection on which nothing happened is not quiet")
			}
			c.Keep(time.Now())
			if err := done(far); err != nil {
				t.Fatal(err)
			}
			settle(t, c)
			again, err := p.Take(context.Background(), Want{})
			if err != nil || again == c || again.Reused() {
				t.Errorf("took the same connection: %v, error %v", again == c, err)
			}
			again.Drop(nil)
		})
	}
}

func TestAQuietConnectionIsReusedAfterADeadline(t *testing.T) {
	l := listen(t, nil)
	o := options(Address{Host: l.Addr().String()})
	o.Header = time.Nanosecond
	p := open(t, o)
	c := take(t, p)
	far := <-l.accepted
	defer far.Close()
	c.AwaitHead(time.Now())
	if _, err := c.Reader.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%v: want the deadline", err)
	}
	c.Keep(time.Now())
	again, err := p.Take(context.Background(), Want{})
	if err != nil || again != c {
		t.Fatalf("took another connection, %v", err)
	}
	c.AwaitStream()
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Reader.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	c.Drop(nil)
}

func TestAnotherGoroutineEndsAWait(t *testing.T) {
	n := new(network)
	p := poolOf(t, n, io.Discard, "a:80")
	c := take(t, p)
	c.AwaitStream()
	ended := make(chan error, 1)
	go func() { _, err := c.Reader.Read(make([]byte, 1)); ended <- err }()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("a read of a connection that was closed ended well")
	}
	c.Drop(net.ErrClosed)
	if a := p.addresses[0]; a.failures != 0 || a.busy != 0 {
		t.Errorf("%d failures, %d busy", a.failures, a.busy)
	}
}

func TestBufferedBytesEndTheConnection(t *testing.T) {
	n := new(network)
	p := poolOf(t, n, io.Discard, "a:80")
	c := take(t, p)
	go func() { _, _ = n.last("a:80").Write([]byte("HTTP/1.1 200 OK\r\n\r\nmore")) }()
	for len(c.Reader.Buffered()) < 8 {
		if err := c.Reader.Fill(1 << 10); err != nil {
			t.Fatal(err)
		}
	}
	c.Keep(time.Now())
	if n.opened() != 0 {
		t.Error("a connection with unread bytes was kept")
	}
}

func TestADeadlineLastsAtMostAnEighthLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(network)
		p := poolOf(t, n, io.Discard, "a:80")
		defer p.Close()
		c := take(t, p)
		waits := func(want time.Duration) {
			t.Helper()
			begun := time.Now()
			_, err := c.Reader.Read(make([]byte, 1))
			if took := time.Since(begun); !errors.Is(err, os.ErrDeadlineExceeded) || took < want || took > want+want/8 {
				t.Errorf("waited %v (%v), want %v and an eighth more at most", took, err, want)
			}
		}
		for range 3 {
			c.AwaitHead(time.Now())
			waits(time.Minute)
		}
		c.AwaitHead(time.Now())
		time.Sleep(7 * time.Second) // the deadline still leaves a minute
		set := c.readBy
		if c.AwaitHead(time.Now()); c.readBy != set {
			t.Error("a deadline that leaves enough was moved")
		}
		waits(time.Minute)
		c.AwaitHead(time.Now())
		c.AwaitBody(time.Now()) // less than the head's: it must be reduced
		waits(30 * time.Second)
		c.AwaitBody(time.Now())
		c.AwaitStream()
		go func() { time.Sleep(time.Hour); _, _ = n.last("a:80").Write([]byte("x")) }()
		if got, err := c.Reader.Read(make([]byte, 1)); got != 1 || err != nil {
			t.Errorf("a stream that was quiet for an hour: %d bytes, %v", got, err)
		}
		c.Drop(nil)
	})
}

func TestAHeadMayTakeAnyTimeAndAStreamIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(network)
		p, err := New(Options{Addresses: []Address{{Host: "a:80"}}, Connect: time.Second, Header: -1, Stall: time.Second, Stream: time.Minute,
			Idle: time.Minute, Dial: n.dial})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		c := take(t, p)
		defer c.Drop(nil)
		c.AwaitBody(time.Now()) // an earlier deadline
		c.AwaitHead(time.Now())
		go func() { time.Sleep(time.Hour); _, _ = n.last("a:80").Write([]byte("x")) }()
		if got, err := c.Reader.Read(make([]byte, 1)); got != 1 || err != nil {
			t.Errorf("a head that took an hour: %d bytes, %v", got, err)
		}
		begun := time.Now()
		c.AwaitPiece(begun)
		_, err = c.Reader.Read(make([]byte, 1))
		if took := time.Since(begun); !errors.Is(err, os.ErrDeadlineExceeded) || took < time.Minute || took > time.Minute+time.Minute/8 {
			t.Errorf("a silent stream: %v after %v", err, took)
		}
	})
}

func TestAWriteToAnUpstreamThatStopsReadingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(network)
		p := poolOf(t, n, io.Discard, "a:80")
		defer p.Close()
		c := take(t, p)
		far := n.last("a:80")
		go func() { // reads 64 KiB in 25 s, then 100 KiB more in 25 s each, and stops
			for range 3 {
				time.Sleep(25 * time.Second)
				_, _ = io.CopyN(io.Discard, far, 64<<10)
			}
		}()
		begun := time.Now()
		wrote, err := c.Write(make([]byte, 1<<20))
		took := time.Since(begun)
		if wrote != 3*64<<10 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("wrote %d bytes, %v; want three pieces and the deadline", wrote, err)
		}
		if stall := took - 75*time.Second; stall < 30*time.Second || stall > 34*time.Second {
			t.Errorf("gave up %v after the last progress, want 30 s and an eighth more at most", stall)
		}
		c.Drop(err)
	})
}

func TestAClientThatGoesAwayEndsItsConnectionAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{hangs: map[string]bool{"a:80": true}}
		p := poolOf(t, n, io.Discard, "a:80", "b:80")
		defer p.Close()
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		if _, err := p.Take(ctx, Want{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: want the context's own", err)
		}
		if a := p.addresses[0]; a.failures != 0 || a.busy != 0 {
			t.Errorf("%d failures and %d busy for a client that went away", a.failures, a.busy)
		}
		p.next = 0
		begun := time.Now()
		c := take(t, p) // a, which takes all of Connect, then b
		if took := time.Since(begun); took != 5*time.Second || c.Address().Host != "b:80" || p.addresses[0].failures != 1 {
			t.Errorf("after %v on %v, %d failures counted", took, c.Address(), p.addresses[0].failures)
		}
		c.Drop(nil)
	})
}

func TestTheSendingHalfOfATCPConnectionCanBeClosed(t *testing.T) {
	l := listen(t, nil)
	p := open(t, options(Address{Host: l.Addr().String()}))
	c := take(t, p)
	far := <-l.accepted
	defer far.Close()
	sent := bytes.Repeat([]byte("x"), 200<<10)
	go func() { _, _ = c.Write(sent); _ = c.CloseWrite() }()
	if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes, %v; want %d and the end", len(got), err, len(sent))
	}
	if _, err := far.Write([]byte("still here")); err != nil {
		t.Fatal(err)
	}
	far.Close()
	if got, err := io.ReadAll(&c.Reader); string(got) != "still here" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	c.Drop(nil)
}
