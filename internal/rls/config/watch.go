package config

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// LookEvery is the time between two looks at the files.
	LookEvery = 500 * time.Millisecond
	// quiet is how long files must stay unchanged until they are read: half a file may be valid.
	quiet = time.Second
	// readEvery is how often small files are read even if they seem unchanged: a coarse clock, or a
	// tool that restores the time, can hide a change.
	readEvery = 5 * time.Second
	smallSize = 1 << 20
	// patience is how long files may be missing before that is reported: they may be about to be
	// replaced.
	patience = 3 * time.Second
)

// A Follower looks at the files of a configuration again and again. It looks at the paths, and does
// not wait for notifications: editors rename another file into place, Kubernetes swaps a link above
// the files, and network file systems send no notifications. It is for one goroutine.
type Follower struct {
	path    string
	files   []File  // those that were returned last
	seen    []stamp // of the last look
	read    []stamp // when files were read; nil: they have to be read
	changed time.Time
	readAt  time.Time
	since   time.Time // when looking began to fail; zero: it does not
	failed  bool      // that was reported
}

// A stamp is what tells whether a file, or what a link leads to, may have changed.
type stamp struct {
	name, target string // target is the name without links; empty for a file that is no link itself
	size         int64
	changed      time.Time
}

// NewFollower returns a Follower of path that has already returned files, at now. The files may
// have changed since they were read, so they must be unchanged for a second from now on.
func NewFollower(path string, files []File, now time.Time) *Follower {
	f := &Follower{path: path, files: files, readAt: now, changed: now}
	f.seen, _ = stamps(path)
	return f
}

// Look returns the files if they differ from those that were returned last, and nil otherwise. A
// change is returned when nothing has changed for a second, or at once if a link was swapped and no
// file has gone. After an error that has lasted for three seconds, it returns the error once.
func (f *Follower) Look(now time.Time) ([]File, error) {
	all, err := stamps(f.path)
	if err != nil {
		return nil, f.fail(now, err)
	}
	swapped := swapped(f.seen, all)
	if !slices.Equal(f.seen, all) {
		f.changed = now
	}
	f.seen = all
	switch {
	case slices.Equal(f.read, all) && (sizeOf(all) > smallSize || now.Sub(f.readAt) < readEvery):
		f.since, f.failed = time.Time{}, false
		return nil, nil
	case !swapped && now.Sub(f.changed) < quiet:
		f.since, f.failed = time.Time{}, false
		return nil, nil
	}
	files, err := Files(f.path)
	if err != nil {
		return nil, f.fail(now, err)
	}
	f.since, f.failed = time.Time{}, false
	if after, err := stamps(f.path); err != nil || !slices.Equal(after, all) {
		return nil, nil // they changed while they were read
	}
	f.read, f.readAt = all, now
	if slices.EqualFunc(files, f.files, func(a, b File) bool { return a.Name == b.Name && bytes.Equal(a.Text, b.Text) }) {
		return nil, nil
	}
	f.files = files
	return files, nil
}

func (f *Follower) fail(now time.Time, err error) error {
	f.read = nil
	if f.since.IsZero() {
		f.since = now
	}
	if f.failed || now.Sub(f.since) < patience {
		return nil
	}
	f.failed = true
	return err
}

// swapped reports whether a link leads to another target than before. It does not if there are
// fewer files: Kubernetes swaps its link first, and adds the links to new files a moment later.
func swapped(before, after []stamp) bool {
	if len(after) < len(before) {
		return false
	}
	targets := make(map[string]string, len(before))
	for _, s := range before {
		targets[s.name] = s.target
	}
	return slices.ContainsFunc(after, func(s stamp) bool {
		was, both := targets[s.name]
		return both && s.target != "" && s.target != was
	})
}

// stamps returns the stamps of the files at path, of their directories, and of the link that
// Kubernetes swaps in a directory: all files may have other names after a swap.
func stamps(path string) ([]stamp, error) {
	names, err := namesIn(path)
	if err != nil {
		return nil, err
	}
	all := make([]stamp, 0, len(names)+2)
	if len(names) == 0 {
		all = appendDirectory(all, path)
	}
	directories := map[string]bool{}
	for _, name := range names {
		if directory := filepath.Dir(name); !directories[directory] {
			directories[directory] = true
			all = appendDirectory(all, directory)
		}
		s := stamp{name: name}
		info, err := os.Lstat(name)
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			if s.target, err = filepath.EvalSymlinks(name); err == nil {
				info, err = os.Stat(s.target)
			}
		}
		if err != nil {
			return nil, err
		}
		s.size, s.changed = info.Size(), info.ModTime()
		all = append(all, s)
	}
	return all, nil
}

func appendDirectory(all []stamp, directory string) []stamp {
	for _, name := range []string{directory, filepath.Join(directory, "..data")} {
		if target, err := filepath.EvalSymlinks(name); err == nil {
			all = append(all, stamp{name: name, target: target})
		}
	}
	return all
}

func sizeOf(all []stamp) (size int64) {
	for _, s := range all {
		size += s.size
	}
	return size
}
