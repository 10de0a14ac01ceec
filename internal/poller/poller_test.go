package poller

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"
)

// pair returns the two ends of a connection, the first of a listener of Listen and the second
// dialled by Dial.
func pair(t testing.TB) (near, far net.Conn) {
	t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(plain)
	defer l.Close()
	far, err = Dial(new(net.Dialer))(context.Background(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// What package net's own connections are held to: deadlines in the past, in the future and moved,
// closing under way, many at a time.
func TestConnectionsBehaveAsThoseOfPackageNet(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	for range 5 {
		nettest.TestConn(t, func() (near, far net.Conn, stop func(), err error) {
			near, far = pair(t)
			return near, far, func() { near.Close(); far.Close() }, nil
		})
	}
}

// Many connections carry megabytes both ways at a time, in pieces that the socket does not take at
// once, and every byte arrives.
func TestEveryByteArrives(t *testing.T) {
	const length = 4 << 20
	sent := make([]byte, length)
	for i := range sent {
		sent[i] = byte(i * i >> 7)
	}
	var all sync.WaitGroup
	for range 8 {
		near, far := pair(t)
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			all.Go(func() {
				if n, err := way[0].Write(sent); n != length || err != nil {
					t.Errorf("wrote %d bytes, %v; want %d", n, err, length)
				}
				if err := way[0].(interface{ CloseWrite() error }).CloseWrite(); err != nil {
					t.Errorf("close the sending half: %v", err)
				}
			})
			all.Go(func() {
				if got, err := io.ReadAll(way[1]); !bytes.Equal(got, sent) || err != nil {
					t.Errorf("read %d bytes, %v; want the %d that were sent", len(got), err, length)
				}
			})
		}
	}
	all.Wait()
}

// Connections come and go while others are in use, so that descriptors are given out again while
// events for them are under way: nobody hears what is another's, and nobody waits in vain.
func TestDescriptorsAreUsedAgain(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(plain)
	var serving, calling sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	dial := Dial(new(net.Dialer))
	for caller := range byte(16) {
		calling.Go(func() {
			for n := range byte(40) {
				c, err := dial(context.Background(), "tcp", l.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				said, heard := []byte{caller, n}, make([]byte, 2)
				for range 1 + n%4 {
					_, err := c.Write(said)
					if _, failed := io.ReadFull(c, heard); err != nil || failed != nil || !bytes.Equal(said, heard) {
						t.Errorf("said %v and heard %v: %v, %v", said, heard, err, failed)
					}
				}
				c.Close()
			}
		})
	}
	calling.Wait()
	l.Close()
	serving.Wait()
}

// A raw read waits for what is new since it began: the half that looks sees what there was before.
func TestARawReadMissesNothing(t *testing.T) {
	near, far := pair(t)
	raw := rawOf(t, near)
	for n := range 1000 {
		asked := false
		err := raw.Read(func(uintptr) bool {
			if asked {
				return true
			}
			asked = true
			if _, err := far.Write([]byte{1}); err != nil { // while nobody waits yet
				t.Error(err)
			}
			return false
		})
		if err != nil {
			t.Fatalf("read %d: %v", n, err)
		}
		if _, err := io.ReadFull(near, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// Who waits in a raw read or write is let go by a deadline, and by Close.
func TestRawWaitsEnd(t *testing.T) {
	never := func(uintptr) bool { return false }
	near, _ := pair(t)
	raw := rawOf(t, near)
	_ = near.SetReadDeadline(time.Now().Add(time.Millisecond))
	if err := raw.Read(never); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	_ = near.SetReadDeadline(time.Time{})
	ended := make(chan error)
	go func() { ended <- raw.Read(never) }()
	go func() { ended <- raw.Write(never) }()
	near.Close()
	for range 2 {
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	for _, err := range []error{raw.Read(never), raw.Write(never), raw.Control(func(uintptr) { t.Error("called, though closed") }), near.Close()} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("of a closed connection: %v", err)
		}
	}
}

// A deadline that is moved holds, whether to earlier or to later and however often: the timer that
// is late, or not moved, does not show.
func TestAMovedDeadlineHolds(t *testing.T) {
	near, far := pair(t)
	var one [1]byte
	_ = near.SetReadDeadline(time.Now().Add(time.Millisecond))
	_ = near.SetReadDeadline(time.Now().Add(time.Hour))
	if _, err := far.Write(one[:]); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Read(one[:]); err != nil {
		t.Errorf("with an hour left: %v", err)
	}
	_ = near.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := near.Read(one[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("with a deadline moved to earlier: %v", err)
	}
	_ = near.SetReadDeadline(time.Now().Add(time.Millisecond))
	began := time.Now()
	_ = near.SetReadDeadline(began.Add(30 * time.Millisecond))
	if _, err := near.Read(one[:]); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) < 30*time.Millisecond {
		t.Errorf("with a deadline moved to later: %v after %v", err, time.Since(began))
	}
	_ = near.SetReadDeadline(time.Unix(1, 0))
	if _, err := far.Write(one[:]); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Read(one[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("with a deadline long passed, and something to read: %v", err)
	}
	_ = near.SetReadDeadline(time.Time{})
	if _, err := near.Read(one[:]); err != nil {
		t.Errorf("without a deadline any more: %v", err)
	}
}

// Who came first is served first, also where there are more than a look takes, or a processor has
// room for: the runtime's own look has its 128 in reverse.
func TestWhoCameFirstIsServedFirst(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // connections are the runtime's
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, test := range []struct{ callers, rounds, most int }{
		// the runtime's own are 250 late, and 170 with the race detector, that runs whom it likes;
		// these 0 and 20
		{50, 20, 80},
		{500, 3, 15}, // 60, 40; 1 and 3. All at one look: 227
	} {
		near, far := make([]net.Conn, test.callers), make([]net.Conn, test.callers)
		for i := range near {
			near[i], far[i] = pair(t)
		}
		late := test.most + 1
		for try := 0; late > test.most && try < 10; try++ { // on a busy machine some are late
			late = howLate(t, near, far, test.rounds)
		}
		if late > test.most {
			t.Errorf("of %d callers each is served %d thousandths of them late, on average; want %d at most", test.callers, late, test.most)
		}
	}
}

// howLate returns how many places each is served behind its own, on average, in thousandths of all.
func howLate(t *testing.T, near, far []net.Conn, rounds int) int {
	t.Helper()
	sum := 0
	for range rounds {
		for place, i := range serve(t, near, far) {
			sum += max(0, place-i)
		}
	}
	return sum * 1000 / rounds / len(near) / len(near)
}

// serve returns the order in which who waits at near is woken, when something comes from far in the
// order of that.
func serve(t *testing.T, near, far []net.Conn) (served []int) {
	var order sync.Mutex
	var all, waits sync.WaitGroup
	for i, c := range near {
		waits.Add(1)
		all.Go(func() {
			var one [1]byte
			waits.Done()
			if _, err := c.Read(one[:]); err != nil {
				t.Error(err)
			}
			order.Lock()
			defer order.Unlock()
			served = append(served, i)
		})
	}
	waits.Wait()
	for range 3 {
		runtime.Gosched() // all wait
	}
	for _, c := range far {
		if _, err := c.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	return served
}

func rawOf(t testing.TB, c net.Conn) syscall.RawConn {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
