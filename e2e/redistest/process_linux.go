package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// pause stops the process, and returns when it has stopped, which is a little after the signal.
func (p *process) pause() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return eventually(func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
		if err != nil {
			return final{err}
		}
		if _, state, _ := bytes.Cut(stat, []byte(") ")); !bytes.HasPrefix(state, []byte("T")) {
			return fmt.Errorf("process %d is not stopped: %s", p.Pid(), state)
		}
		return nil
	})
}

func (p *process) resume() error { return p.Signal(syscall.SIGCONT) }
