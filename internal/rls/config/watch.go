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

// A stamp is what tells whether a file may have changed.
type stamp struct {
	name, target string // target is name without links
	size         int64
	changed      time.Time
}

// NewFollower returns a Follower of path that has already returned files, at now.
func NewFollower(path string, files []File, now time.Time) *Follower {
	f := &Follower{path: path, files: files, readAt: now}
	f.seen, _ = stamps(path)
	return f
}

// Look returns the files if they differ from those that were returned last, and nil otherwise. A
// change is returned when nothing has changed for a second, or at once if a link was swapped. After
// an error that has lasted for three seconds, it returns the error once.
func (f *Follower) Look(now time.Time) ([]File, error) {
	all, err := stamps(f.path)
	if err != nil {
		return nil, f.fail(now, err)
	}
	swapped := !slices.EqualFunc(f.seen, all, func(a, b stamp) bool { return a.target == b.target || a.name != b.name })
	if !slices.Equal(f.seen, all) {
		f.changed = now
	}
	f.seen = all
	switch {
	case slices.Equal(f.read, all) && (sizeOf(all) > smallSize || now.Sub(f.readAt) < readEvery):
		f.since, f.failed = time.Time{}, false
		return nil, nil
	case !swapped && now.Sub(f.changed) < quiet:
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

// stamps returns the stamps of the files at path.
func stamps(path string) ([]stamp, error) {
	names, err := namesIn(path)
	if err != nil {
		return nil, err
	}
	all := make([]stamp, 0, len(names))
	for _, name := range names {
		target, err := filepath.EvalSymlinks(name)
		var info fs.FileInfo
		if err == nil {
			info, err = os.Stat(target)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, stamp{name, target, info.Size(), info.ModTime()})
	}
	return all, nil
}

func sizeOf(all []stamp) (size int64) {
	for _, s := range all {
		size += s.size
	}
	return size
}
