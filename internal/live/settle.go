package live

import (
	"bytes"
	"errors"
	"io/fs"
	"time"
)

// How long a new text must stay unchanged before it is taken for complete. A file has no mark that
// its writer has finished. A file that was renamed into place is complete. Any other may be half of
// a policy, so a pause counts as the end. All these times, plus the time between two looks, are
// below the three seconds that docs/operate.md promises.
const (
	// stillRenamed is for a file that was renamed into place. It may be replaced by another one.
	stillRenamed = time.Second
	// stillWritten is for a text that was written in place, or to a new file at the same path.
	stillWritten = 2 * time.Second
	// stillAgain is the shortest pause after a text that is written every second.
	stillAgain = 600 * time.Millisecond
	// busyAfter is how long a file keeps changing before stillRenamed and stillWritten are
	// shortened.
	busyAfter = 2400 * time.Millisecond
	// restlessAfter is how long a file keeps changing before that is reported as an error.
	restlessAfter = 3 * time.Second
)

// errRestless is reported for a file that keeps changing.
var errRestless = errors.New("the file kept changing for three seconds, so it is not known whether it is complete: " +
	"write the new text to another file there, and rename that over it")

// A change is the history of a file from the look that finds a text other than the decided one,
// until the file settles and its text is decided, or until the decided text is back.
type change struct {
	since     time.Time
	newest    sighting
	prior     sighting      // the last text before newest that is not empty
	unchanged time.Duration // how long prior stayed unchanged
	piecemeal bool          // a text has grown: the writer does not write a text at once
	turns     int           // how often a text was replaced by one that does not begin with it
	// what the newest text has replaced, if it may be taken for complete; see complete
	replaced *sighting
}

// A sighting is a text that looks have found in a file.
type sighting struct {
	info    fs.FileInfo // nil: no look has found any
	text    []byte
	renamed bool      // the file was renamed into place, and not written since
	again   bool      // the file was written since the last look, even if it seems unchanged
	since   time.Time // the first look that found the file in this state
	first   time.Time // the first look that found the text; it may have been written again since
}

// see records the result of a look.
func (c *change) see(s sighting, judged []byte) {
	if c.newest.info != nil && !s.again && alike(c.newest.info, s.info) && bytes.Equal(c.newest.text, s.text) {
		c.newest.renamed = s.renamed
		return
	}
	if len(c.newest.text) > 0 {
		c.prior, c.unchanged = c.newest, s.since.Sub(c.newest.since)
	}
	before := c.prior
	s.first = s.since
	switch {
	// the first text, or the file was emptied to be written
	case len(before.text) == 0 || len(s.text) == 0:
	case bytes.Equal(s.text, before.text):
		s.first = before.first
	case !s.renamed && bytes.HasPrefix(s.text, before.text):
		c.piecemeal = true
	default:
		c.turns++
		c.replaced = nil
		whole := bytes.HasSuffix(before.text, []byte("\n")) && !bytes.HasPrefix(judged, before.text)
		if whole && !before.renamed && !s.renamed && c.unchanged >= stillAgain {
			c.replaced = &before
		}
	}
	c.newest = s
}

// complete returns the text that is taken for complete at now, or nil.
func (c *change) complete(now time.Time) *sighting {
	n := &c.newest
	unchanged, busy := now.Sub(n.since), now.Sub(c.since) >= busyAfter
	switch {
	case n.renamed && (busy || unchanged >= stillRenamed):
		return n
	case unchanged >= stillWritten:
		return n
	case n.renamed || c.piecemeal:
		return nil
	case now.Sub(n.first) >= stillWritten && unchanged >= stillAgain:
		return n // the same text is written again and again
	case busy && c.turns >= 2:
		// Several texts are written in place, each at once. The newest may be incomplete. The one
		// before it was replaced, not continued.
		return c.replaced
	}
	return nil
}
