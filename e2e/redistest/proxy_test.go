package redistest_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/e2e/redistest"
)

// ping sends one PING over c and returns how long the answer took.
func ping(c net.Conn) (time.Duration, error) {
	start := time.Now()
	if _, err := io.WriteString(c, "PING\r\n"); err != nil {
		return 0, err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && line != "+PONG\r\n" {
		err = errors.New(line)
	}
	return time.Since(start), err
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// opened dials, and checks that the server answers.
func opened(t *testing.T, addr string) net.Conn {
	t.Helper()
	c := dial(t, addr)
	if _, err := ping(c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAProxyPasses(t *testing.T) {
	p := redistest.NewProxy(t, redistest.Start(t).Addr())
	c := opened(t, p.Addr())
	if to, from := p.Bytes(); to != 6 || from != 7 || p.Connections() != 1 {
		t.Errorf("%d bytes to the server, %d from it, %d connections", to, from, p.Connections())
	}
	p.Cut()
	if _, err := ping(c); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a connection that was cut: %v", err)
	}
	opened(t, p.Addr())
}

func TestAProxyHoldsAnswersBack(t *testing.T) {
	p := redistest.NewProxy(t, redistest.Start(t).Addr())
	c := opened(t, p.Addr())
	p.Delay(50 * time.Millisecond)
	if took, err := ping(c); err != nil || took < 50*time.Millisecond {
		t.Errorf("the answer took %v: %v", took, err)
	}
	p.Delay(time.Hour) // the test's end does not wait for it
	if _, err := io.WriteString(c, "PING\r\n"); err != nil {
		t.Error(err)
	}
}

func TestABlackHoleDropsEverything(t *testing.T) {
	p := redistest.NewProxy(t, redistest.Start(t).Addr())
	old := opened(t, p.Addr())
	p.BlackHole()
	for name, c := range map[string]net.Conn{"old": old, "new": dial(t, p.Addr())} {
		if err := c.SetDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := ping(c); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the %s connection: %v", name, err)
		}
	}
	p.Pass(t)
	if err := old.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ping(old); err == nil {
		t.Error("a connection that lost bytes is still open")
	}
	opened(t, p.Addr())
}

func TestAProxyRefuses(t *testing.T) {
	p := redistest.NewProxy(t, redistest.Start(t).Addr())
	old := opened(t, p.Addr())
	p.Refuse()
	if _, err := ping(old); err == nil {
		t.Error("an open connection is still open")
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v", err)
	}
	p.Pass(t)
	opened(t, p.Addr())
}

func TestAProxyIsRetargeted(t *testing.T) {
	first, second := redistest.Start(t), redistest.Start(t)
	p := redistest.NewProxy(t, first.Addr())
	old := opened(t, p.Addr())
	p.Retarget(second.Addr())
	first.Stop()
	if _, err := ping(old); err == nil {
		t.Error("a connection outlives its server")
	}
	opened(t, p.Addr())
}
