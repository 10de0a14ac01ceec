package poller

import (
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// What came before a deadline is read, though its reader gets a processor only after it.
func TestWhatCameInTimeIsRead(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that who is woken runs after what follows
	near, far := pair(t)
	c := near.(*Conn)
	for range 100 {
		_ = c.SetReadDeadline(time.Now().Add(time.Hour))
		read := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 1))
			read <- err
		}()
		for c.reads.state.Load() != waiting {
			runtime.Gosched()
		}
		if _, err := far.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if c.reads.signal() { // as the poller does, later
			c.reads.rouse(true)
		}
		_ = c.SetReadDeadline(time.Unix(1, 0))
		if err := <-read; err != nil {
			t.Fatalf("a read that was told of a byte before its deadline: %v", err)
		}
	}
}

// What is wrong with a connection shows also where nothing is written.
func TestWritingNothingTellsWhatIsWrong(t *testing.T) {
	near, far := pair(t)
	if n, err := near.Write(nil); n != 0 || err != nil {
		t.Errorf("nothing is wrong: %d, %v", n, err)
	}
	if err := near.(*Conn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Write(nil); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("with the half closed: %v", err)
	}
	far.Close()
}

// A connection for which there is no descriptor is the runtime's, and the next one is ours again.
func TestWithoutADescriptorTheConnectionIsTheRuntimes(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for _, enough := range []bool{false, true} {
		far, err := net.Dial("tcp", plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		near, err := plain.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if !enough {
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
				t.Fatal(err)
			}
		}
		taken := Take(near)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if _, ours := taken.(*Conn); ours != enough {
			t.Errorf("descriptors left %v: a %T", enough, taken)
		}
		go func() { _, _ = far.Write([]byte{1}) }()
		if _, err := taken.Read(make([]byte, 1)); err != nil {
			t.Errorf("descriptors left %v: %v", enough, err)
		}
		taken.Close()
		far.Close()
	}
}
