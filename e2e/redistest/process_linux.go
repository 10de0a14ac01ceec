package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// diesWithUs makes the kernel kill the child when the test binary ends, however it ends.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// pause stops the process, and returns when it has stopped, which is a little after the signal.
func (p *process) pause() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return eventually(func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
		if err != nil {
			return final{err}
		}
		if _, state, _ := bytes.Cut(stat, []byte(") ")); !bytes.HasPrefix(state, []byte("T")) {
			return fmt.Errorf("process %d is not stopped: %s", p.pid(), state)
		}
		return nil
	})
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
