package live

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weirlimit/weir/policyfile"
)

// A watched file is polled. Each poll looks at the path, and not at an open file or a notification:
// editors rename another file into its place, Kubernetes swaps a link above it, and network file
// systems send no notifications.
type watched struct {
	path    string
	maxSize int // bytes that are read, and one more

	judged  []byte      // the text that was decided last, whatever the result
	seen    fs.FileInfo // of the file that was read last; nil: none
	settled bool        // whether seen describes the judged text
	change  *change     // nil: the last poll found the judged text
	looks   int

	failures int // consecutive failures to look

	target   string    // where path leads, without links; empty: not known
	arrivals *arrivals // at target; nil: no target
	// of the file that was renamed into place, or that a link was set to; nil: none
	whole fs.FileInfo
}

// An arrival is the last event at the target of a path.
type arrival uint8

const (
	nothing arrival = iota // no event since the last look
	renamed                // a file was renamed into place
	written                // a file was created, written or removed, or events were lost
	lost                   // the directory is gone, or events are not available
)

const (
	// readSmallEvery is after how many looks the text is compared even if the file seems unchanged:
	// a clock too coarse for two writes, a tool that restores the time, or a network file system's
	// cache can hide a change.
	readSmallEvery = int(time.Second / lookEvery)
	// readLargeEvery is the same for a file over small bytes, which takes longer to read.
	readLargeEvery = int(time.Minute / lookEvery)
	small          = policyfile.MaxSize
	// patientFor is how many consecutive failures are not reported: a file that is being replaced
	// may be missing for a moment.
	patientFor = int(3 * time.Second / lookEvery)
)

// errChanged means that a file was changed while it was read.
var errChanged = errors.New("the file changed while it was read")

// judge records that text has been decided.
func (f *watched) judge(text []byte) {
	f.judged, f.settled = text, false
	f.change = nil
}

// readEvery is after how many looks the text is compared even if the file seems unchanged.
func (f *watched) readEvery() int {
	if f.seen != nil && f.seen.Size() > small {
		return readLargeEvery
	}
	return readSmallEvery
}

// close closes the descriptors of the watch. A later look opens them again.
func (f *watched) close() {
	if f.arrivals != nil {
		f.arrivals.close()
	}
	f.target, f.arrivals, f.whole = "", nil, nil
}

// follow watches the target of the path. A link that was set to another file counts as a renaming:
// the file behind it was complete before.
func (f *watched) follow() {
	target, err := filepath.EvalSymlinks(f.path)
	if err == nil {
		target, err = filepath.Abs(target)
	}
	if err != nil {
		return // the look will return the reason
	}
	if f.arrivals != nil && f.arrivals.look() != lost && target == f.target {
		return
	}
	turned := f.target != "" && f.target != target
	f.close()
	if f.target, f.arrivals = target, arrivalsAt(target); turned {
		f.arrivals.last = renamed
	}
}

// arrived records whether the file that was just read was renamed into place. again reports whether
// it was written since the last look, even if it seems unchanged: file times are coarse.
func (f *watched) arrived(info fs.FileInfo) (again bool) {
	if f.arrivals == nil {
		return false
	}
	last := f.arrivals.last
	switch f.arrivals.look() {
	case lost:
		f.whole = nil
		return false
	case renamed, written:
		return true // it may already be another file: the next look decides
	}
	switch f.arrivals.last = nothing; last {
	case renamed:
		f.whole = info
	case written:
		f.whole = nil
	}
	return last == written
}

// now returns the current text, and records it as decided.
func (f *watched) now() ([]byte, error) {
	info, err := os.Stat(f.path)
	if err == nil && !info.Mode().IsRegular() {
		err = irregular(f.path) // opening a pipe could block for ever
	}
	var text []byte
	if err == nil {
		text, info, err = readStable(f.path, openRegular, f.maxSize)
	}
	if err != nil {
		f.settled = false
		return nil, err
	}
	f.judge(text)
	f.seen, f.settled, f.failures = info, true, 0
	return text, nil
}

// look returns a text that differs from the one decided last and is taken for complete (see
// settle.go), and records it as decided. It returns an error if the file could not be read
// patientFor times in a row, and errRestless if it keeps changing.
func (f *watched) look(now time.Time) (text []byte, changed bool, err error) {
	f.looks++
	f.follow()
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, false, f.failed(err)
	}
	if !info.Mode().IsRegular() {
		return nil, false, f.failed(irregular(f.path))
	}
	if f.settled && alike(info, f.seen) && f.looks%f.readEvery() != 0 {
		f.failures = 0
		return nil, false, nil
	}
	text, info, err = read(f.path, openRegular, f.maxSize)
	if errors.Is(err, errChanged) {
		if f.begin(now); f.change.newest.info != nil {
			f.change.newest.since = now
		}
		return nil, false, f.restless(now)
	}
	if err != nil {
		return nil, false, f.failed(err)
	}
	f.failures, f.seen = 0, info
	again := f.arrived(info)
	if bytes.Equal(text, f.judged) {
		f.change, f.settled = nil, true
		return nil, false, nil
	}
	f.begin(now)
	whole := f.whole != nil && alike(f.whole, info)
	f.change.see(sighting{info: info, text: text, renamed: whole, again: again, since: now}, f.judged)
	done := f.change.complete(now)
	if done == nil {
		return nil, false, f.restless(now)
	}
	f.judged, f.settled = done.text, done == &f.change.newest
	if f.settled {
		f.change = nil
	} else { // the file keeps changing
		newest := f.change.newest
		f.change = &change{since: newest.since, newest: newest}
	}
	return done.text, true, nil
}

// begin records that the file is changing.
func (f *watched) begin(now time.Time) {
	f.settled = false
	if f.change == nil {
		f.change = &change{since: now}
	}
}

// restless returns errRestless if the file has been changing for too long.
func (f *watched) restless(now time.Time) error {
	if now.Sub(f.change.since) < restlessAfter {
		return nil
	}
	return errRestless
}

// failed returns err if it is the patientFor-th consecutive failure.
func (f *watched) failed(err error) error {
	f.change, f.settled = nil, false
	if f.failures++; f.failures < patientFor {
		return nil
	}
	return err
}

// alike reports whether a path leads to the same file as before, and the file seems unchanged.
func alike(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func irregular(path string) error {
	return fmt.Errorf("%s is not a regular file, so it cannot be read again", path)
}

// openRegular is os.Open for a regular file, and fails for anything else. It never blocks: a pipe
// may have replaced the file since the stat, and opening it would wait for the other end, without a
// way to stop.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readStable is read with retries while the file is being changed.
func readStable(path string, open func(string) (*os.File, error), maxSize int) (text []byte, info fs.FileInfo, err error) {
	for range 3 {
		if text, info, err = read(path, open, maxSize); !errors.Is(err, errChanged) {
			break
		}
	}
	return text, info, err
}

// read returns the content of a file, up to one byte more than maxSize, and its FileInfo. The error
// is errChanged if the file was changed meanwhile.
func read(path string, open func(string) (*os.File, error), maxSize int) ([]byte, fs.FileInfo, error) {
	f, err := open(path)
	if err != nil {
		return nil, nil, err // names the path
	}
	defer f.Close()
	return readFrom(f, maxSize)
}

// readFrom is read for an open file at its start.
func readFrom(f *os.File, maxSize int) ([]byte, fs.FileInfo, error) {
	before, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if before.IsDir() {
		return nil, nil, fmt.Errorf("%s is a directory; expected one file", f.Name())
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(maxSize)+1))
	if err != nil {
		return nil, nil, err
	}
	after, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if before.Mode().IsRegular() && !alike(before, after) {
		return nil, nil, fmt.Errorf("%s: %w", f.Name(), errChanged)
	}
	return text, after, nil
}
