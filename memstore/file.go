package memstore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// ErrNoMapping is wrapped by the error of New for an Options.File on a system other than Linux.
var ErrNoMapping = errors.New("counts in a file need Linux")

// An InUseError means that another process has locked the file.
type InUseError struct {
	File string
	Name string // Options.Name of the other process; empty means unknown
	PID  int    // of the other process; 0 means unknown
}

// Error names the file and the other process.
func (e *InUseError) Error() string {
	name := e.Name
	if name == "" {
		name = "another process"
	}
	if e.PID == 0 {
		return fmt.Sprintf("the counts in %s are in use by %s", e.File, name)
	}
	return fmt.Sprintf("the counts in %s are in use by %s, process %d", e.File, name, e.PID)
}

// A corruptError describes the damage of a file that is to be set aside.
type corruptError struct{ reason error }

func (e *corruptError) Error() string { return e.reason.Error() }

// setAside renames a damaged file and logs message.
func setAside(file string, damage *corruptError, log *slog.Logger, message string) error {
	to := fmt.Sprintf("%s.set-aside-%d", file, time.Now().UnixNano())
	if err := os.Rename(file, to); err != nil {
		return fmt.Errorf("set aside %s, which is damaged (%w): %w", file, damage, err)
	}
	log.Error(message, "file", file, "reason", damage.Error(), "kept", to)
	return nil
}
