package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// A process is a child process. If the system can do that, it dies with the test binary.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// startProcess starts a command with its output in the file log, which it truncates first.
func startProcess(log string, env []string, name string, args ...string) (*process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = diesWithUs()
	started := make(chan error)
	go func() {
		// The kernel kills a child with the thread that started it, not with the process, so this
		// goroutine keeps its thread until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the log shows how it ended
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%w (scripts/deps installs what tests need)", err)
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.resume() // a paused process receives no signal
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.kill()
	}
}

func readLog(name string) string {
	const maxBytes = 16 << 10
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-maxBytes):])
}

// patience is the time-out for everything; on an idle machine nothing takes a tenth of it.
const patience = 30 * time.Second

// A final error is one that waiting does not cure.
type final struct{ error }

// eventually calls try until it returns nil, and returns its last error after patience.
func eventually(try func() error) error {
	deadline := time.After(patience)
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
			return fmt.Errorf("after %v: %w", patience, err)
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
