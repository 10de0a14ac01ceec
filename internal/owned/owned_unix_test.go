//go:build unix

package owned

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// another is a user and group that no test runs as.
var another = owner{61234, 61235}

// given returns a directory of another user if this process is root, and else one of its own.
func given(t *testing.T) (dir string, of owner) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Chown(dir, another.uid, another.gid); err != nil && !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	return dir, ownerAt(t, dir)
}

func ownerAt(t *testing.T, path string) owner {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	o, ok := ownerOf(info)
	if !ok {
		t.Fatalf("%s has no owner", path)
	}
	return o
}

func TestWhatIsCreatedBelongsToTheOwnerOfItsDirectory(t *testing.T) {
	dir, of := given(t)
	path := func(name string) string { return filepath.Join(dir, name) }
	f, err := Create(path("created"))
	if err != nil {
		t.Fatal(err)
	}
	g, err := Open(path("opened"), os.O_APPEND)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), g.Close(), Make(path("made")), MkdirAll(path("a/b")), Make(path("a/b/c"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"created", "opened", "made", "a", "a/b", "a/b/c"} {
		if is := ownerAt(t, path(name)); is.uid != of.uid {
			t.Errorf("%s belongs to %v, its directory to %v", name, is, of)
		}
		if info, err := os.Stat(path(name)); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
	}
	if _, err := Create(path("made")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create what exists: %v", err)
	}
}

// Root does not give away a file that the owner of the directory has put in the place of one.
func TestAnExistingFileKeepsItsOwner(t *testing.T) {
	dir, _ := given(t)
	elsewhere := t.TempDir()
	there, gone := filepath.Join(elsewhere, "there"), filepath.Join(elsewhere, "gone")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mine := ownerAt(t, there)
	for _, target := range []string{there, gone} { // gone: as a rotated log leaves a link
		link := filepath.Join(dir, filepath.Base(target))
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if err := Make(link); err != nil {
			t.Error(err)
		}
		if is := ownerAt(t, target); is != mine {
			t.Errorf("%s belongs to %v now, and belonged to %v", target, is, mine)
		}
	}
}

func TestAFileThatCannotBeGivenAwayIsAnErrorForRootOnly(t *testing.T) {
	denied, broken := error(&fs.PathError{Op: "chown", Path: "x", Err: syscall.EPERM}), error(syscall.EIO)
	for _, c := range []struct {
		now   owner
		uid   int
		chown error
		want  error
	}{
		{now: owner{0, 0}, uid: 0, chown: nil, want: nil},
		{now: owner{0, 0}, uid: 0, chown: broken, want: broken},
		// in a container without the right, in a user namespace, on a file system without owners
		{now: owner{0, 0}, uid: 0, chown: denied, want: nil},
		{now: owner{0, 0}, uid: 0, chown: syscall.EINVAL, want: nil},
		{now: owner{0, 0}, uid: 0, chown: syscall.EOPNOTSUPP, want: nil},
		// in a directory that a group shares
		{now: owner{7, 7}, uid: 7, chown: broken, want: nil},
		// a file system that gives every file to that user
		{now: owner{another.uid, 0}, uid: 0, chown: denied, want: nil},
	} {
		if err := another.take(c.now, c.uid, func() error { return c.chown }); err != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
	dir, of := given(t)
	path := filepath.Join(dir, "new")
	_, err := create(path, 0, func(*os.File, int, int) error { return syscall.EIO })
	_, left := os.Stat(path)
	if of == another && (err == nil || HintOf(err, "") == "" || !errors.Is(left, fs.ErrNotExist)) {
		t.Errorf("the file was kept (%v), and the error is %v", left, err)
	}
}

func TestAMissingPermissionNamesTheOwners(t *testing.T) {
	dir, of := given(t)
	path := filepath.Join(dir, "secret")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	denied := &fs.PathError{Op: "open", Path: path, Err: syscall.EACCES}
	err := Explain(denied)
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v (hint: %s)", err, HintOf(err, ""))
	}
	if of == another && (!strings.Contains(err.Error(), "the file belongs to root, and its directory to 61234") || HintOf(err, "") != "") {
		t.Errorf("root is told %v (hint: %s)", err, HintOf(err, ""))
	}
	if hint, want := another.runAs(), "sudo -u '#61234' weir …"; !strings.Contains(hint, want) {
		t.Errorf("the hint is %q, want %q", hint, want)
	}
	other := &fs.PathError{Op: "open", Path: path, Err: syscall.ENOENT}
	if err := Explain(other); err != error(other) || HintOf(err, "otherwise") != "otherwise" {
		t.Errorf("another error is %v", err)
	}
}
