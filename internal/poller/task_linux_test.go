package poller

import (
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// attached returns the far end of a pair whose near end a task reads and writes, which runs f.
func attached(t *testing.T, f func(*Task, *Conn)) (far net.Conn) {
	t.Helper()
	near, far := pair(t)
	runs(near.(*Conn), f)
	return far
}

// runs has a task run f, which reads and writes c.
func runs(c *Conn, f func(*Task, *Conn)) {
	go Run(func(task *Task) {
		c.Attach(task)
		f(task, c)
	})
}

// ofEachPoller returns connections whose near ends are of a poller each, every poller's, and their
// far ends.
func ofEachPoller(t *testing.T) map[*Conn]net.Conn {
	t.Helper()
	all, has := map[*Conn]net.Conn{}, map[*poller]bool{}
	for process.pollers.Load() == nil || len(all) < len(*process.pollers.Load()) {
		one, other := pair(t)
		for near, far := range map[net.Conn]net.Conn{one: other, other: one} {
			if c := near.(*Conn); !has[c.poller] {
				has[c.poller], all[c] = true, far
				break
			}
		}
	}
	return all
}

// The poller runs a task from the moment when its socket is ready until it waits again.
func TestThePollerRunsATaskWhoseSocketIsReady(t *testing.T) {
	inside := make(chan bool, 1)
	var near *Conn
	far := attached(t, func(task *Task, c *Conn) {
		near = c
		inside <- task.IsInside()
		p := make([]byte, 8)
		for {
			n, err := c.Read(p)
			if err != nil {
				inside <- task.IsInside()
				return
			}
			inside <- task.IsInside()
			if p[0] == 'd' {
				task.Detach()
				inside <- task.IsInside()
			}
			_, _ = c.Write(p[:n])
		}
	})
	if <-inside {
		t.Error("the poller runs it before its first wait")
	}
	for _, s := range []string{"a", "b", "detach", "c"} {
		for near.reads.state.Load() != waiting { // else a read need not wait
			runtime.Gosched()
		}
		if _, err := far.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
		if !<-inside {
			t.Errorf("%q: the poller does not run it", s)
		}
		if s == "detach" && <-inside {
			t.Error("the poller runs it after Detach")
		}
		p := make([]byte, 8)
		if n, err := far.Read(p); err != nil || string(p[:n]) != s {
			t.Errorf("%q, %v: want %q", p[:n], err, s)
		}
	}
	for near.reads.state.Load() != waiting {
		runtime.Gosched()
	}
	far.Close()
	if !<-inside {
		t.Error("the end: the poller does not run it")
	}
}

// What ends a read ends that of a task: a deadline, or Close.
func TestATasksReadEndsAsAnyDoes(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(near *Conn)
		want    error
	}{
		"a deadline that comes":  {func(near *Conn) { _ = near.SetReadDeadline(time.Now().Add(time.Millisecond)) }, os.ErrDeadlineExceeded},
		"a deadline in the past": {func(near *Conn) { _ = near.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		"Close":                  {func(near *Conn) { _ = near.Close() }, net.ErrClosed},
	} {
		for before := range 3 { // messages
			taken, far := pair(t)
			near := taken.(*Conn)
			read, ended := make(chan struct{}), make(chan error)
			go Run(func(task *Task) {
				near.Attach(task)
				for {
					if _, err := near.Read(make([]byte, 8)); err != nil {
						ended <- err
						return
					}
					read <- struct{}{}
				}
			})
			for range before {
				if _, err := far.Write([]byte{1}); err != nil {
					t.Fatal(err)
				}
				<-read
			}
			test.happens(near)
			if err := <-ended; !errors.Is(err, test.want) {
				t.Errorf("%s, after %d messages: %v, want %v", name, before, err, test.want)
			}
		}
	}
}

// A read that took all there was does not hide the end that came together with it.
func TestATaskReadsTheEndThatCameWithTheLastBytes(t *testing.T) {
	for range 200 {
		begin, ended := make(chan struct{}), make(chan int)
		far := attached(t, func(_ *Task, c *Conn) {
			<-begin
			all := 0
			for {
				n, err := c.Read(make([]byte, 64))
				if all += n; err != nil {
					ended <- all
					return
				}
			}
		})
		if _, err := far.Write([]byte("last")); err != nil {
			t.Fatal(err)
		}
		far.Close()
		close(begin)
		if n := <-ended; n != 4 {
			t.Fatalf("%d bytes before the end, want 4", n)
		}
	}
}

// A write that has to wait lets the poller run other tasks.
func TestATaskThatWaitsToWriteHoldsUpNoOther(t *testing.T) {
	const size = 16 << 20
	writing, written := make(chan struct{}, 1), make(chan error, 1)
	slow := attached(t, func(_ *Task, c *Conn) {
		_, _ = c.Read(make([]byte, 1))
		writing <- struct{}{}
		_, err := c.Write(make([]byte, size))
		written <- err
	})
	_, _ = slow.Write([]byte{1})
	<-writing
	for near, echo := range ofEachPoller(t) {
		runs(near, func(_ *Task, c *Conn) {
			p := make([]byte, 1)
			for {
				if _, err := c.Read(p); err != nil {
					return
				}
				_, _ = c.Write(p)
			}
		})
		for range 10 {
			_, _ = echo.Write([]byte{1})
			if _, err := echo.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		echo.Close()
	}
	for n := 0; n < size; {
		m, err := slow.Read(make([]byte, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		n += m
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// A task that waits without Detach holds up the others of its poller until Relieve has seen it
// twice, and then no more; it goes on too.
func TestRelieveEndsTheWaitForATaskThatDoesNotDetach(t *testing.T) {
	blocked, release := make(chan struct{}, 1), make(chan struct{})
	for near, far := range ofEachPoller(t) {
		runs(near, func(_ *Task, c *Conn) {
			_, _ = c.Read(make([]byte, 1))
			blocked <- struct{}{}
			<-release
			_, _ = c.Write([]byte{2})
		})
		for near.reads.state.Load() != waiting { // else the poller may not run it
			runtime.Gosched()
		}
		_, _ = far.Write([]byte{1})
		<-blocked
		defer func() {
			if _, err := far.Read(make([]byte, 1)); err != nil {
				t.Errorf("a task that was relieved: %v", err)
			}
		}()
	}
	var other atomic.Int64
	var all sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		far := attached(t, func(_ *Task, c *Conn) {
			_, _ = c.Read(make([]byte, 1))
			other.Add(1)
			_, _ = c.Write([]byte{3})
		})
		all.Go(func() {
			_, _ = far.Write([]byte{1})
			if _, err := far.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	for waits := true; waits; {
		select {
		case <-done:
			waits = false
		default:
			Relieve()
			runtime.Gosched()
		}
	}
	if n := other.Load(); n != int64(4*runtime.GOMAXPROCS(0)) {
		t.Errorf("%d others have run", n)
	}
	close(release)
}

// Tasks that pass bytes on, from one socket to another, of any pollers, lose none and get no
// wake-up twice, while deadlines come and others detach.
func TestTasksOfAllPollersPassEverythingOn(t *testing.T) {
	const pairs, messages = 32, 200
	var all sync.WaitGroup
	for i := range pairs {
		up, behind := pair(t)
		upstream := up.(*Conn)
		go func() { // a server that sends each message back
			p := make([]byte, 16)
			for {
				n, err := behind.Read(p)
				if err != nil {
					return
				}
				_, _ = behind.Write(p[:n])
			}
		}()
		far := attached(t, func(task *Task, c *Conn) {
			defer c.Close()
			upstream.Attach(task)
			p := make([]byte, 16)
			for n := 0; ; n++ {
				m, err := c.Read(p)
				if err != nil {
					return
				}
				_ = upstream.SetReadDeadline(time.Now().Add(time.Hour))
				if (n+i)%3 == 0 {
					task.Detach()
				}
				_, _ = upstream.Write(p[:m])
				if m, err = upstream.Read(p); err != nil {
					return
				}
				_, _ = c.Write(p[:m])
			}
		})
		all.Go(func() {
			defer far.Close()
			p := make([]byte, 16)
			for n := range messages {
				_, _ = far.Write([]byte{byte(n), byte(i)})
				if m, err := far.Read(p); err != nil || m != 2 || p[0] != byte(n) || p[1] != byte(i) {
					t.Errorf("pair %d, message %d: %v, %v", i, n, p[:m], err)
					return
				}
			}
		})
	}
	all.Wait()
}
