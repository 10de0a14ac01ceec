package memstore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// ErrNoMapping is why New refuses Options.File on a system on which counts are kept in memory only.
var ErrNoMapping = errors.New("counts in a file need Linux")

// An InUseError says that another process holds the file.
type InUseError struct {
	File string
	Name string // Options.Name of the holder; empty where it has not said yet
	PID  int    // of the holder; 0 where it has not said yet
}

// Error names the holder.
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

// A distrust is why a file is set aside and not read.
type distrust struct{ why error }

func (d *distrust) Error() string { return d.why.Error() }

// setAside renames a file that cannot be trusted, and says so.
func setAside(file string, why *distrust, log *slog.Logger, says string) error {
	to := fmt.Sprintf("%s.set-aside-%d", file, time.Now().UnixNano())
	if err := os.Rename(file, to); err != nil {
		return fmt.Errorf("set aside %s, which cannot be read (%w): %w", file, why, err)
	}
	log.Error(says, "file", file, "reason", why.Error(), "kept", to)
	return nil
}
