package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/e2e/child"
)

// A process is a child process that can be paused.
type process struct{ *child.Process }

// startProcess starts a command with its output in the file log, which it truncates first.
func startProcess(log string, env []string, name string, args ...string) (*process, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	p, err := child.Start(cmd, log, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	return &process{p}, nil
}

func (p *process) stop() {
	_ = p.Signal(syscall.SIGTERM)
	_ = p.resume() // a paused process receives no signal
	p.Stop(10 * time.Second)
}

// A final error is one that waiting does not cure.
type final struct{ error }

// eventually calls try until it returns nil, and returns its last error after child.Patience.
func eventually(try func() error) error {
	deadline := time.After(child.Patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil || errors.As(err, new(final)) {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline:
			return fmt.Errorf("after %v: %w", child.Patience, err)
		}
	}
}

// The servers' ports are below the range that systems assign by default, so that no other process
// gets one by accident while a server is down. A node of a cluster also uses the port that is
// busOffset higher.
const (
	firstPort, ports = 10_000, 10_000
	busOffset        = 10_000
)

// sparePort returns a port of the loopback without a listener, also at busOffset above it.
func sparePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(ports)
		if spare(port) && spare(port+busOffset) {
			return port
		}
	}
	t.Fatal("no spare port on the loopback")
	return 0
}

func spare(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
