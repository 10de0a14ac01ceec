// Package owned creates files that belong to the owner of their directory, also if root creates
// them. A data directory belongs to the user that the server runs as. A file of root's with mode
// 0600 in it would lock that server out.
package owned

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// Create creates a file with mode 0600 and opens it for reading and writing. A file that exists is
// fs.ErrExist. Only root gives files away, where the system and the file system let it; if that
// fails otherwise, Create removes the file again and returns an error.
func Create(path string) (*os.File, error) { return create(path, 0, (*os.File).Chown) }

func create(path string, flag int, chown func(f *os.File, uid, gid int) error) (*os.File, error) {
	// With O_EXCL the file is new and is not behind a link, so that no other file is given away.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|flag, 0o600)
	if err != nil {
		return nil, Explain(err)
	}
	if err := give(f, chown); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return f, nil
}

// Anew is Create of a file in place of one that a killed process has left, such as a temporary one.
// The caller holds a lock, so no other process uses it.
func Anew(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return Create(path)
}

// Replace replaces the file at path atomically, and syncs it and its name. The caller holds a lock,
// so no other process does.
func Replace(path string, content []byte) error {
	f, err := Anew(path + ".new")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		return nil // directories cannot be synced there
	}
	d, err := os.Open(filepath.Dir(path)) // syncs the name too, against a power cut
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Open opens a file for reading and writing, with flag as for os.OpenFile, which may be 0. If there
// is no file, it creates one as Create does.
func Open(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|flag, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, Explain(err)
	}
	if f, err = create(path, flag, (*os.File).Chown); !errors.Is(err, fs.ErrExist) {
		return f, err
	}
	// Another process was first, or the path is a link to a file that does not exist.
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|flag, 0o600)
	return f, Explain(err)
}

// Make creates an empty file if there is none, such as one for locks.
func Make(path string) error {
	f, err := Open(path, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// MkdirAll is os.MkdirAll with mode 0700, for directories that each belong to the owner of the one
// above.
func MkdirAll(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if above := filepath.Dir(dir); above != dir {
		if err := MkdirAll(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		if info, failed := os.Stat(dir); failed == nil && info.IsDir() {
			return nil // another process was first
		}
		return Explain(err)
	}
	f, err := openDir(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := give(f, (*os.File).Chown); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	return nil
}

// give gives a new file or directory to the owner of the directory that it is in.
func give(f *os.File, chown func(f *os.File, uid, gid int) error) error {
	own, err := f.Stat()
	if err != nil {
		return err
	}
	above, err := os.Stat(filepath.Dir(f.Name()))
	if err != nil {
		return err
	}
	to, ok := ownerOf(above)
	now, _ := ownerOf(own)
	if !ok {
		return nil
	}
	if err := to.take(now, os.Geteuid(), func() error { return chown(f, to.uid, to.gid) }); err != nil {
		return &DeniedError{fmt.Errorf("give %s to %s, the owner of its directory: %w", f.Name(), to.user(), err), to.runAs()}
	}
	return nil
}

// take makes o the owner of a file by chown, if another user owns it now and uid, the user of this
// process, is root. Root may lack the right, as in a container, or o may be unknown in its user
// namespace, or the file system may have no owners: then root keeps the file.
func (o owner) take(now owner, uid int, chown func() error) error {
	if now.uid == o.uid || uid != 0 {
		return nil
	}
	err := chown()
	for _, kept := range []error{fs.ErrPermission, syscall.EINVAL, errors.ErrUnsupported} {
		if errors.Is(err, kept) {
			return nil
		}
	}
	if at := new(fs.PathError); errors.As(err, &at) {
		return at.Err
	}
	return err
}

// A DeniedError is an error of a file or a directory that belongs to another user.
type DeniedError struct {
	Err  error
	Hint string // what to do; may be empty
}

func (e *DeniedError) Error() string { return e.Err.Error() }
func (e *DeniedError) Unwrap() error { return e.Err }

// Explain returns a *DeniedError if err is a missing permission and the file or its directory
// belongs to another user. Otherwise it returns err.
func Explain(err error) error {
	var at *fs.PathError
	if !errors.Is(err, fs.ErrPermission) || !errors.As(err, &at) {
		return err
	}
	dir := filepath.Dir(at.Path)
	above, failed := os.Stat(dir)
	if failed != nil {
		return err
	}
	of, ok := ownerOf(above)
	if !ok {
		return err
	}
	if info, failed := os.Stat(at.Path); failed == nil {
		if own, _ := ownerOf(info); own.uid != of.uid {
			hint := "" // another user's directory is not this process's to repair
			if of.uid == os.Geteuid() {
				hint = fmt.Sprintf("chown %s:%s %s", of.user(), of.group(), at.Path)
			}
			return &DeniedError{fmt.Errorf("%w: the file belongs to %s, and its directory to %s", err, own.user(), of.user()), hint}
		}
	}
	if of.uid == os.Geteuid() {
		return err
	}
	return &DeniedError{fmt.Errorf("%w: the directory belongs to %s", err, of.user()), of.runAs()}
}

// HintOf returns the hint of the *DeniedError that err wraps, or otherwise if there is none.
func HintOf(err error, otherwise string) string {
	if denied, ok := errors.AsType[*DeniedError](err); ok && denied.Hint != "" {
		return denied.Hint
	}
	return otherwise
}
