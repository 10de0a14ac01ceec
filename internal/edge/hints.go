package edge

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/owned"
	"github.com/weirlimit/weir/internal/sample"
)

// noData returns the failure of opening a data directory.
func noData(dir string, err error) error {
	return cli.Fail(fmt.Errorf("open the data directory %q: %w", dir, err), DataHint(err))
}

// DataHint returns the hint for an error of a data directory.
func DataHint(err error) string {
	return DataHintOr(err, "choose the data directory with --data DIR; Weir must be allowed to write there")
}

// DataHintOr returns the hint for a file of the data directory that is not what Weir keeps there,
// or that belongs to another user; otherwise is the hint if the error is about something else.
func DataHintOr(err error, otherwise string) string {
	switch {
	case errors.Is(err, sample.ErrDamaged):
		return "without the file, a start makes an empty one: the tokens of 'weir token create' and the sample backend's rows are lost, and all else is kept"
	case errors.Is(err, admin.ErrAuditKey):
		return "without the file, a start makes a new key: the same caller then has another hash in the audit log than before"
	case errors.Is(err, syscall.EISDIR):
		return "Weir keeps a file of that name there: move the directory away, and a start makes the file anew"
	}
	return owned.HintOf(err, otherwise)
}

// fileHint returns the hint for a file that could not be read; otherwise is the hint if its content
// is wrong.
func fileHint(err error, otherwise string) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if at := new(fs.PathError); errors.As(err, &at) && filepath.IsAbs(at.Path) {
			return "name a file that exists"
		}
		return "name a file that exists; a path without a slash at its beginning is relative to the working directory"
	case errors.Is(err, fs.ErrPermission):
		return "give the user that runs this command permission to read the file"
	}
	return otherwise
}

// listenHint returns the hint for an address that cannot be listened on. free describes how to get
// a free port.
func listenHint(err error, free string) string {
	switch {
	case errors.Is(err, os.ErrPermission):
		return "ports below 1024 need privileges; --listen :8080 needs none"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine does not have that address; without a host, as in :8080, Weir listens on all addresses of the machine"
	case errors.As(err, new(*net.DNSError)):
		return "is the host name right? without a host, as in :8080, Weir listens on all addresses of the machine"
	}
	return "is another server running? " + free
}

// cause returns the cause of a network error, without the address.
func cause(err error) error {
	var at *net.OpError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// size formats bytes as flags do.
func size(bytes int64) *cli.Size { return (*cli.Size)(&bytes) }

// absolute returns the absolute path of a file, or path if the working directory is unknown.
func absolute(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return abs
}
