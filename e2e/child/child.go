// Package child runs a server process for a test: its output goes to a file, and it ends with the
// test binary if the system can do that. Only tests import it.
package child

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Patience is the time-out for everything that a test waits for; on an idle machine nothing takes a
// tenth of it.
const Patience = 30 * time.Second

// A Process is a child process. It is safe for concurrent use.
type Process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// Start starts a command with its output in the file log, which it truncates first. On Linux the
// child receives the signal death when the test binary ends, however that ends.
func Start(cmd *exec.Cmd, log string, death syscall.Signal) (*Process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &Process{cmd: cmd, log: log, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, out, dieBy(death)
	started := make(chan error)
	go func() {
		// The kernel signals a child when the thread that started it ends, not the process, so this
		// goroutine keeps its thread until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // State shows how it ended
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%w (scripts/deps installs what tests need)", err)
	}
	return p, nil
}

// Pid returns the id of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// State returns how the process ended, once Done is closed.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill kills the process if it has not ended, and returns when it has.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// Stop terminates the process, and returns when it has ended. It reports false if it had to kill
// the process, because that did not end within a time.
func (p *Process) Stop(within time.Duration) bool {
	_ = p.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
		return true
	case <-time.After(within):
		p.Kill()
		return false
	}
}

// Output returns the end of what the process has written.
func (p *Process) Output() string { return Tail(p.log) }

// Tail returns the end of a file, or the error of reading it.
func Tail(name string) string {
	const maxBytes = 16 << 10
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-maxBytes):])
}

// Await returns nil when ok returns true. It returns an error if the process ends before, or after
// Patience; what says what ok waits for.
func (p *Process) Await(what string, ok func() bool) error {
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-p.done:
			return fmt.Errorf("%v:\n%s", p.State(), p.Output())
		case <-deadline.C:
			return fmt.Errorf("waited %v in vain that %s; the output is:\n%s", Patience, what, p.Output())
		case <-tick.C:
		}
	}
	return nil
}
