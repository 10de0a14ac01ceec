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

// A process is one that we started. It dies with us, where the system can see to that.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// startProcess starts a command that writes to the file log, which is emptied first.
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
		// A child dies with the thread that started it, not with the process: so this goroutine keeps its thread until the
		// child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is in its log
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
	_ = p.resume() // one that is paused hears nothing
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.kill()
	}
}

func readLog(name string) string {
	const most = 16 << 10
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// patience is how long anything may take before it is taken to have failed; nothing here takes a tenth of it on an idle machine.
const patience = 30 * time.Second

// A final error is one that waiting does not cure.
type final struct{ error }

// eventually tries until there is no error, and returns the last one where that takes too long.
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

// The ports that servers get are below those that systems give to whoever asks for any, so that nobody gets one by accident
// while a server is down. A node of a cluster also has the port that is busOffset higher.
const (
	firstPort, ports = 10_000, 10_000
	busOffset        = 10_000
)

// sparePort returns a port of the loopback where nobody listens, nor on the one that is busOffset higher.
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
