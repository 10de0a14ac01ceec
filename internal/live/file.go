package live

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/weirlimit/weir/policyfile"
)

// A watched file is one that is looked at again and again. Looking is asked of the path, not of an open file or a notification, since
// editors rename another file into its place, Kubernetes swaps a link above it, and network file systems notify nobody.
type watched struct {
	path string

	judged  [sha256.Size]byte // of the last text that was judged, whatever the judgement
	settled fs.FileInfo       // what the file looked like when that was read; nil: look closer
	waiting *sighting         // another text, which must be there at the next look too
	looks   int

	failures int // to look, in a row
}

// A sighting is a text that a look has found.
type sighting struct {
	info fs.FileInfo
	sum  [sha256.Size]byte
}

const (
	// readEvery is after how many looks the text itself is compared though the file looks the same: a clock too coarse for two writes,
	// a tool that sets the time back, or a network file system's cache can hide a change.
	readEvery = 10
	// patientFor is how many failures in a row are no news: a file that is replaced may be gone for a moment.
	patientFor = 3
)

// errMoved says that a file was changed while it was read.
var errMoved = errors.New("the file changes while it is read")

// judge notes that text is judged.
func (f *watched) judge(text []byte) { f.judged = sha256.Sum256(text) }

// now returns the text as it is, and notes that it is judged.
func (f *watched) now() ([]byte, error) {
	info, err := os.Stat(f.path)
	if err == nil && !info.Mode().IsRegular() {
		err = irregular(f.path) // opening a pipe could wait for ever
	}
	var text []byte
	if err == nil {
		text, info, err = readStill(f.path, openRegular)
	}
	if err != nil {
		f.settled = nil
		return nil, err
	}
	f.judge(text)
	f.settled, f.waiting, f.failures = info, nil, 0
	return text, nil
}

// look returns the text if it is another than was judged last, and was so at the look before already; it notes that it is judged.
// The error, once there was one patientFor times in a row, is why nothing can be read.
func (f *watched) look() (text []byte, changed bool, err error) {
	f.looks++
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, false, f.failed(err)
	}
	if !info.Mode().IsRegular() {
		return nil, false, f.failed(irregular(f.path))
	}
	if f.settled != nil && alike(info, f.settled) && f.looks%readEvery != 0 {
		f.failures = 0
		return nil, false, nil
	}
	text, info, err = read(f.path, openRegular)
	if errors.Is(err, errMoved) {
		f.waiting = nil
		return nil, false, nil
	}
	if err != nil {
		return nil, false, f.failed(err)
	}
	f.failures = 0
	sum := sha256.Sum256(text)
	if sum == f.judged {
		f.settled, f.waiting = info, nil
		return nil, false, nil
	}
	if f.waiting == nil || f.waiting.sum != sum || !alike(f.waiting.info, info) {
		f.settled, f.waiting = nil, &sighting{info, sum}
		return nil, false, nil
	}
	f.judged, f.settled, f.waiting = sum, info, nil
	return text, true, nil
}

// failed returns err once it is news.
func (f *watched) failed(err error) error {
	f.settled, f.waiting = nil, nil
	if f.failures++; f.failures < patientFor {
		return nil
	}
	return err
}

// alike says whether a path leads to the same file as before, and that looks untouched.
func alike(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func irregular(path string) error {
	return fmt.Errorf("read policy: %s is no regular file, and only such a one is read again", path)
}

// openRegular is os.Open for a regular file, and errs for anything else. It never waits: a pipe may have come into the place of the file
// since it was looked at, and whoever waits for its other end watches nothing any more, and cannot be ended.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readStill is read, tried again where the file was just being changed.
func readStill(path string, open func(string) (*os.File, error)) (text []byte, info fs.FileInfo, err error) {
	for range 3 {
		if text, info, err = read(path, open); !errors.Is(err, errMoved) {
			break
		}
	}
	return text, info, err
}

// read returns what a file holds, up to one byte more than a policy may have, and what it looks like. It is errMoved where that
// changed meanwhile.
func read(path string, open func(string) (*os.File, error)) ([]byte, fs.FileInfo, error) {
	f, err := open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read policy: %w", err)
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("read policy: %w", err)
	}
	if before.IsDir() {
		return nil, nil, fmt.Errorf("read policy: %s is a directory, where one file is needed", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, policyfile.MaxSize+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read policy: %w", err)
	}
	after, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("read policy: %w", err)
	}
	if before.Mode().IsRegular() && !alike(before, after) {
		return nil, nil, fmt.Errorf("read policy %s: %w", path, errMoved)
	}
	return text, after, nil
}
