package live

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"runtime"
	"time"

	"github.com/weirlimit/weir/policyfile"
)

// How long a new text must stay as it is before it is judged. A file has no mark that says that its
// writer has finished, so a pause is taken for the end, and the pause is longer where a text may be half
// of one. All of them, with the time between two looks, are below the three seconds that
// docs/operate.md promises.
const (
	// stillReplaced is for another file in the place of the old one.
	stillReplaced = time.Second
	// stillDoubtful is for a text that may be half of one: in a file that is written in place, after it has grown, without a line break
	// at its end, or if it is the beginning of the judged text.
	stillDoubtful = 2 * time.Second
	// stillAgain is for a file that gets one new text after another, each of them at once.
	stillAgain = 600 * time.Millisecond
	// keptFor is how old a file is that was renamed into place when its text is judged though other files have taken its place.
	keptFor = 800 * time.Millisecond
	// restlessAfter is how long a change lasts before it is reported that no text of it can be judged.
	restlessAfter = 3 * time.Second
)

// errRestless is reported for a file that keeps changing.
var errRestless = errors.New("the file has kept changing for three seconds, and no text of it can be taken for complete: " +
	"write the new policy beside it, ended by a line break, and rename it into its place")

// A change is what happens to a file from the look that finds another text than the judged one, until a new text is judged or the
// judged one is back.
type change struct {
	since     time.Time
	newest    sighting
	rewritten bool // the file was written again, or replaced, after a look had found a new text
	piecemeal bool // a text has grown, so this writer does not write a text at once

	kept   sighting
	keptIn *os.File // that of kept, held open; nil: there is none. It was not written since a look found it
}

// A sighting is a text that looks find in a file.
type sighting struct {
	info     fs.FileInfo // nil: no look has found any
	text     []byte
	since    time.Time // the first of these looks
	doubtful bool      // see stillDoubtful
}

// see notes what a look finds. inPlace says that the look before found the same file, with the judged text or another. f is the open
// file, which see closes or keeps.
func (c *change) see(s sighting, inPlace bool, judged []byte, f *os.File) {
	before := c.newest
	same := before.info != nil && bytes.Equal(before.text, s.text)
	if same && alike(before.info, s.info) {
		_ = f.Close() // it was only read
		return
	}
	ended, cut := bytes.HasSuffix(s.text, []byte("\n")), bytes.HasPrefix(judged, s.text)
	switch {
	case len(before.text) == 0: // none was found, or the file had been emptied to be written
		s.doubtful = inPlace || cut || !ended
	case inPlace && !same && bytes.HasPrefix(s.text, before.text):
		s.doubtful, c.piecemeal = true, true
	default: // a text that was written twice is no half
		s.doubtful, c.rewritten = cut || !ended && !same, true
	}
	c.newest = s
	if c.keptIn != nil && os.SameFile(c.kept.info, s.info) {
		c.letGo() // it is written in place, which may go on
	}
	if c.keptIn == nil && !inPlace && runtime.GOOS != "windows" { // where no file can be renamed onto an open one
		c.kept, c.keptIn = s, f
		return
	}
	_ = f.Close() // it was only read
}

// complete returns what is taken for a whole text at now; nil means that nothing is.
func (c *change) complete(now time.Time) *sighting {
	still := stillReplaced
	switch {
	case c.newest.doubtful || c.piecemeal:
		still = stillDoubtful
	case c.rewritten:
		still = stillAgain
	}
	if now.Sub(c.newest.since) >= still {
		return &c.newest
	}
	if c.keptIn != nil && now.Sub(c.kept.since) >= keptFor && !os.SameFile(c.kept.info, c.newest.info) && c.unwritten() {
		return &c.kept
	}
	return nil
}

// unwritten reports whether the kept file is as it was when it was first seen. Another file has been renamed into its place, so nobody
// is about to write more of it.
func (c *change) unwritten() bool {
	info, err := c.keptIn.Stat()
	if err != nil || info.Size() != c.kept.info.Size() || !info.ModTime().Equal(c.kept.info.ModTime()) {
		return false
	}
	text, err := io.ReadAll(io.NewSectionReader(c.keptIn, 0, policyfile.MaxSize+1))
	return err == nil && bytes.Equal(text, c.kept.text)
}

func (c *change) letGo() {
	if c.keptIn != nil {
		_ = c.keptIn.Close() // it was only read
		c.keptIn = nil
	}
}
