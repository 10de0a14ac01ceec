// Package cli is what a command-line program is made of beside its commands: failures with a hint
// and an exit status, flags whose values are parsed once, flags that variables set, and what a
// terminal shows while a long command runs. It knows nothing of any single command.
package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
)

// Exit statuses.
const (
	Done    = 0
	Failed  = 1 // the command was used correctly and failed: an invalid policy, a port in use
	Misused = 2 // the command was used incorrectly: an unknown flag, a bad value
)

// A Failure is an error as the user sees it, and the exit status that it leads to.
type Failure struct {
	Err  error
	Hint string // what the user can do about it; may be empty
	Exit int
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Fail returns the failure of a command that was used correctly. The hint may be empty.
func Fail(err error, hint string) error { return &Failure{Err: err, Hint: hint, Exit: Failed} }

// UsageError returns the failure of a command that was used incorrectly. The hint may be empty.
func UsageError(hint, format string, args ...any) error {
	return &Failure{Err: fmt.Errorf(format, args...), Hint: hint, Exit: Misused}
}

// hintOf returns the hint of an error that is a Failure, or "".
func hintOf(err error) string {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f.Hint
	}
	return ""
}

// ErrReported is the error of a failure whose reasons are already printed: Report does not print
// it.
var ErrReported = errors.New("already reported")

// Report prints err and its hint, if it has one, and returns the exit status. An error that is not
// a failure comes from the parser of the command line.
func Report(w io.Writer, cmd *cobra.Command, err error) int {
	var f *Failure
	var unwritten *fs.PathError
	switch {
	case errors.As(err, &f):
	case errors.As(err, &unwritten) && unwritten.Op == "write": // such as to a full disk
		f = &Failure{Err: err, Exit: Failed}
	default:
		f = &Failure{Err: err, Hint: seeHelp(cmd), Exit: Misused}
	}
	if !errors.Is(err, ErrReported) {
		fmt.Fprintf(w, "error: %s\n", strings.TrimSpace(err.Error()))
	}
	if f.Hint != "" {
		fmt.Fprintf(w, "hint: %s\n", f.Hint)
	}
	return f.Exit
}

// seeHelp returns the hint that points to a command's help.
func seeHelp(cmd *cobra.Command) string { return fmt.Sprintf("see '%s --help'", cmd.CommandPath()) }
