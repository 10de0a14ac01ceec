package live

import (
	"bytes"
	"errors"
	"io/fs"
	"time"
)

// How long a new text must stay as it is before it is judged. A file has no mark that says that its
// writer has finished. A file that was renamed into place is complete. Any other may be half of a
// policy, so a pause is taken for the end. All of these times, with the time between two looks, are
// below the three seconds that docs/operate.md promises.
const (
	// stillRenamed is for a file that was renamed into place. It may be replaced by another one.
	stillRenamed = time.Second
	// stillWritten is for a text that was written in place, or in a new file at the same path.
	stillWritten = 2 * time.Second
	// stillAgain is the shortest pause after a text that is written every second.
	stillAgain = 600 * time.Millisecond
	// busyAfter is how long a file keeps changing before stillRenamed and stillWritten are cut short.
	busyAfter = 2400 * time.Millisecond
	// restlessAfter is how long a change lasts before it is reported that no text of it can be judged.
	restlessAfter = 3 * time.Second
)

// errRestless is reported for a file that keeps changing.
var errRestless = errors.New("the file has kept changing for three seconds, and no text of it can be taken for complete: " +
	"write the new policy beside it, and rename it into its place")

// A change is what happens to a file from the look that finds another text than the judged one,
// until the file stands still and its text is judged, or the judged text is back.
type change struct {
	since     time.Time
	newest    sighting
	prior     sighting      // the last text before the newest that is not empty
	stood     time.Duration // how long prior stayed as it was
	piecemeal bool          // a text has grown: this writer does not write a text at once
	turns     int           // how often a text was replaced by one that does not begin with it
	replaced  *sighting     // what the newest text has replaced, if it can be judged; see busy
}

// A sighting is a text that looks find in a file.
type sighting struct {
	info    fs.FileInfo // nil: no look has found any
	text    []byte
	renamed bool      // the file was renamed into place, and not written since
	again   bool      // the file was written since the look before, though it may look untouched
	since   time.Time // of the first look that found the file so
	first   time.Time // of the first look that found the text; it may have been written again since
}

// see notes what a look finds.
func (c *change) see(s sighting, judged []byte) {
	if c.newest.info != nil && !s.again && alike(c.newest.info, s.info) && bytes.Equal(c.newest.text, s.text) {
		c.newest.renamed = s.renamed
		return
	}
	if len(c.newest.text) > 0 {
		c.prior, c.stood = c.newest, s.since.Sub(c.newest.since)
	}
	before := c.prior
	s.first = s.since
	switch {
	case len(before.text) == 0 || len(s.text) == 0: // it is the first, or the file was emptied to be written
	case bytes.Equal(s.text, before.text):
		s.first = before.first
	case !s.renamed && bytes.HasPrefix(s.text, before.text):
		c.piecemeal = true
	default:
		c.turns++
		c.replaced = nil
		whole := bytes.HasSuffix(before.text, []byte("\n")) && !bytes.HasPrefix(judged, before.text)
		if whole && !before.renamed && !s.renamed && c.stood >= stillAgain {
			c.replaced = &before
		}
	}
	c.newest = s
}

// complete returns what is taken for a whole text at now; nil means that nothing is.
func (c *change) complete(now time.Time) *sighting {
	n := &c.newest
	stood, busy := now.Sub(n.since), now.Sub(c.since) >= busyAfter
	switch {
	case n.renamed && (busy || stood >= stillRenamed):
		return n
	case stood >= stillWritten:
		return n
	case n.renamed || c.piecemeal:
		return nil
	case now.Sub(n.first) >= stillWritten && stood >= stillAgain:
		return n // the same text is written again and again
	case busy && c.turns >= 2:
		// One text after another is written in place, each at once. The newest may be half of one. The
		// one before it was replaced, and not continued.
		return c.replaced
	}
	return nil
}
