package fast

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/gateway/rules"
)

// A gatedConn records what is written to it. Each write waits until the gate lets it pass.
type gatedConn struct {
	net.Conn
	gate chan error // the results of writes

	mu     sync.Mutex
	wrote  []string
	closed bool
	readBy time.Time
}

func (c *gatedConn) Write(p []byte) (int, error) {
	text := string(p)
	if err := <-c.gate; err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrote = append(c.wrote, text)
	return len(p), nil
}

func (c *gatedConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

func (c *gatedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy = t
	return nil
}

func (c *gatedConn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// gathering calls a test with a gatheringConn over a gatedConn.
func gathering(t *testing.T, test func(t *testing.T, g *gatheringConn, below *gatedConn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		below := &gatedConn{gate: make(chan error)}
		test(t, newGatheringConn(new(rules.Rules), below), below)
	})
}

func write(t *testing.T, g *gatheringConn, text string) {
	t.Helper()
	if n, err := g.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatalf("wrote %d of %q, %v", n, text, err)
	}
}

// What comes while a write is under way goes out together, in order.
func TestWritesAreGathered(t *testing.T) {
	gathering(t, func(t *testing.T, g *gatheringConn, below *gatedConn) {
		write(t, g, "first")
		synctest.Wait()
		write(t, g, "a head, ")
		write(t, g, "its body, ")
		write(t, g, "another head")
		below.gate <- nil
		below.gate <- nil
		synctest.Wait()
		if want := []string{"first", "a head, its body, another head"}; !slices.Equal(below.wrote, want) {
			t.Errorf("%q, want %q", below.wrote, want)
		}
		write(t, g, "after a pause")
		below.gate <- nil
		synctest.Wait()
		if n := len(below.wrote); n != 3 || below.wrote[2] != "after a pause" {
			t.Errorf("%q", below.wrote)
		}
	})
}

// A client that does not read holds a bounded number of bytes here. The writer waits, and all goes
// out in order once the client reads.
func TestUnwrittenBytesAreBounded(t *testing.T) {
	gathering(t, func(t *testing.T, g *gatheringConn, below *gatedConn) {
		text := strings.Repeat("0123456789", maxUnwritten/3)
		done := make(chan bool)
		go func() {
			write(t, g, text)
			close(done)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("all of it was taken")
		default:
		}
		for ended := false; !ended; {
			select {
			case below.gate <- nil:
			case <-done:
				ended = true
			}
		}
		for synctest.Wait(); g.isWriting(); synctest.Wait() {
			below.gate <- nil
		}
		if got := strings.Join(below.wrote, ""); got != text {
			t.Errorf("%d bytes went out, want the %d that were written", len(got), len(text))
		}
		if longest := slices.MaxFunc(below.wrote, func(a, b string) int { return len(a) - len(b) }); len(longest) > maxUnwritten {
			t.Errorf("a write of %d bytes", len(longest))
		}
	})
}

func (g *gatheringConn) isWriting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.writing
}

// A connection that is closed first writes what is buffered, without anyone's waiting for it, and
// is open for a drain until then.
func TestACloseLosesNothing(t *testing.T) {
	gathering(t, func(t *testing.T, g *gatheringConn, below *gatedConn) {
		write(t, g, "the last answer")
		if err := errors.Join(g.SetWriteDeadline(time.Now()), g.Close(), g.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Write([]byte("more")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write after Close: %v", err)
		}
		if open, taken := g.rules.Open.Load(), g.rules.TakenOver.Len(); below.isClosed() || open != 1 || taken != 1 || !below.readBy.Before(time.Now()) {
			t.Errorf("closed: %v; %d open, %d to be cut; reads end at %v", below.isClosed(), open, taken, below.readBy)
		}
		below.gate <- nil
		synctest.Wait()
		if open, taken := g.rules.Open.Load(), g.rules.TakenOver.Len(); !below.isClosed() || open != 0 || taken != 0 {
			t.Errorf("closed: %v; %d open, %d to be cut", below.isClosed(), open, taken)
		}
		if !slices.Equal(below.wrote, []string{"the last answer"}) {
			t.Errorf("%q", below.wrote)
		}
	})
}

func TestAFailedWriteEndsTheConnection(t *testing.T) {
	gathering(t, func(t *testing.T, g *gatheringConn, below *gatedConn) {
		write(t, g, "lost")
		failure := errors.New("the client has gone")
		below.gate <- failure
		synctest.Wait()
		if _, err := g.Write([]byte("more")); !errors.Is(err, failure) || !below.isClosed() {
			t.Errorf("closed: %v; the next write: %v", below.isClosed(), err)
		}
		if err := g.Close(); err != nil || g.rules.Open.Load() != 0 {
			t.Errorf("%v; %d open", err, g.rules.Open.Load())
		}
	})
}
