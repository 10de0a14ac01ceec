//go:build unix

package owned

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownerOf returns the owner of a file; ok is false if files have none.
func ownerOf(info fs.FileInfo) (o owner, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return o, false
	}
	return owner{int(s.Uid), int(s.Gid)}, true
}

// openDir opens a directory that is not behind a link.
func openDir(dir string) (*os.File, error) {
	return os.OpenFile(dir, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
}

// Access returns an error if this process may not read and write the file at path. It does not open
// the file. A file that does not exist is fine.
func Access(path string) error {
	err := unix.Access(path, unix.R_OK|unix.W_OK)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return Explain(&fs.PathError{Op: "open", Path: path, Err: err})
}
