package accesslog

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds of the lines that wait for earlier ones, over all files.
const (
	mostWaiting = 256 << 10 // lines
	mostPinned  = 64 << 20  // bytes
)

// A Reader gives the lines of many logs in the order of their times. One goroutine may use it at a time; Stats may be called
// from any.
type Reader struct {
	o         Options
	pool      blocks
	depackers depackers
	closed    []*source // not yet open, the first due first
	open      merge
	given     int32 // the record of open[0] that the caller holds; -1: none
	leaving   int64 // the latest time that has left
	waiting   int   // lines
	held      int   // their bytes

	formats    []string // per file
	total      int64    // bytes of all files; -1 unknown
	bytes      atomic.Int64
	read       atomic.Int64
	malformed  atomic.Int64
	own        atomic.Int64
	dropped    atomic.Int64
	outOfOrder atomic.Int64
	disorder   atomic.Int64
}

// Stats are how far a Reader has come.
type Stats struct {
	Bytes int64 // read of the files as they lie: compressed
	Total int64 // that they have; -1: one of them does not tell, as a pipe
	Lines int64 // read, the malformed among them; blank ones are none

	Malformed  int64
	Own        int64         // lines of Weir's own log that are no requests, such as when it starts and stops
	Dropped    int64         // requests that Weir's own log says are missing in it
	OutOfOrder int64         // lines that came after a later one
	Disorder   time.Duration // the longest by which one did

	Formats []string // of each file; empty for a file that holds nothing
}

// Open opens logs for reading. It looks at the beginning of each: a file that cannot be read, is named twice, or is of no format that
// can be told is an error that names it. Where Options.Format says the format, lines that have another are malformed, and no error. It waits for the first lines of a pipe. Close must be called.
func Open(o Options) (*Reader, error) {
	if len(o.Files) == 0 {
		o.Files = []string{"-"}
	}
	o.Files = slices.Clone(o.Files)
	o.Fields = slices.Clone(o.Fields)
	choices, err := choices(o.Format)
	if err != nil {
		return nil, err
	}
	r := &Reader{o: o, given: -1, formats: make([]string, len(o.Files))}
	r.pool.size = blockSize
	if len(o.Files) > manyFiles {
		r.pool.size = smallBlock
	}
	names := make(map[string]bool, len(o.Files))
	for i, name := range o.Files {
		if names[name] {
			err = fmt.Errorf("read %s: it is named twice", name)
			break
		}
		names[name] = true
		s := &source{r: r, file: i, name: name, packing: -1, latest: math.MinInt64}
		holds, openErr := s.inspect(choices)
		if err = openErr; err != nil {
			break
		}
		r.measure(s)
		if holds {
			r.formats[i] = s.format.name
			r.closed = append(r.closed, s)
		}
	}
	if err == nil {
		err = errors.Join(r.twice(), r.unknownFields(choices))
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	slices.SortStableFunc(r.closed, func(a, b *source) int { return cmp.Compare(a.due, b.due) })
	return r, nil
}

// measure adds a file to what is to be read.
func (r *Reader) measure(s *source) {
	switch {
	case r.total < 0:
	case s.info == nil || !s.info.Mode().IsRegular():
		r.total = -1
	default:
		r.total += s.info.Size()
	}
}

// twice is an error where two names are of one file.
func (r *Reader) twice() error {
	type key struct {
		size     int64
		modified time.Time
	}
	seen := map[key][]*source{}
	for _, s := range r.closed {
		if s.info == nil {
			continue
		}
		k := key{s.info.Size(), s.info.ModTime()}
		for _, other := range seen[k] {
			if os.SameFile(s.info, other.info) {
				return fmt.Errorf("read %s: it is the same file as %s", s.name, other.name)
			}
		}
		seen[k] = append(seen[k], s)
	}
	return nil
}

// unknownFields is an error where a field is one that no line of any file can have.
func (r *Reader) unknownFields(choices []format) error {
	for _, field := range r.o.Fields {
		known := len(r.closed) == 0
		for _, s := range r.closed {
			known = known || s.format.open(nil).has(field)
		}
		if !known {
			return fmt.Errorf("keep field %q: lines of the format %s have none of that name", field, r.closed[0].format.name)
		}
	}
	return nil
}

// Next fills l with the next line; its slices hold until Next is called again. After the last line it returns io.EOF. Any other
// error says which file could not be read on, and at which line; the lines before it have been given, and Next may be called again for
// what the other files hold.
func (r *Reader) Next(l *Line) error {
	if r.given >= 0 {
		if err := r.forward(); err != nil {
			return err
		}
	}
	for len(r.closed) > 0 && (len(r.open) == 0 || r.closed[0].due <= r.open[0].head) {
		s := r.closed[0]
		r.closed = r.closed[1:]
		if err := s.open(); errors.Is(err, syscall.EMFILE) {
			return fmt.Errorf("%w: %d logs overlap in time and are open at once, so allow more open files, or read fewer logs", err, len(r.open))
		} else if err != nil {
			return err
		}
		if !s.fill() {
			if s.err != nil {
				return s.err
			}
			continue
		}
		heap.Push(&r.open, s)
	}
	if len(r.open) == 0 {
		return io.EOF
	}
	s := r.open[0]
	r.given = s.order.pop()
	*l = s.order.at(r.given).Line
	if l.Time < r.leaving {
		r.outOfOrder.Add(1)
		if by := r.leaving - l.Time; by > r.disorder.Load() {
			r.disorder.Store(by)
		}
	} else {
		r.leaving = l.Time
	}
	return nil
}

// forward lets go of the line that the caller holds, and makes the next one open[0]'s earliest. The error is the one that a file
// has ended with.
func (r *Reader) forward() error {
	s := r.open[0]
	s.letGo(r.given)
	r.given = -1
	if !s.fill() {
		heap.Pop(&r.open)
		return s.err
	}
	if len(r.open) > 1 {
		heap.Fix(&r.open, 0)
	}
	return nil
}

// full reports whether no more lines can wait.
func (r *Reader) full() bool { return r.waiting >= mostWaiting || r.pool.pinned >= mostPinned }

// compact moves the lines that wait out of blocks that hold little else: one line whose time is far ahead would pin a whole block.
// The file that is being read may not be in the merge yet.
func (r *Reader) compact(reading *source) {
	sources := r.open
	if !slices.Contains(sources, reading) {
		sources = append(slices.Clone(sources), reading)
	}
	shelf, used := r.pool.take(r.pool.size), 0
	for _, s := range sources {
		s.held(func(rec *record) {
			if rec.in == nil || !rec.in.past {
				return
			}
			need := rec.length()
			if used+need > len(shelf.text) {
				r.pool.leave(shelf)
				shelf, used = r.pool.take(need), 0
			}
			shelf.refs++
			r.pool.release(rec.in)
			rec.in = shelf
			r.held += need - rec.size
			rec.size = need
			used += rec.move(shelf.text[used:])
		})
	}
	r.pool.leave(shelf)
}

// Stats returns how far the reader has come. It may be called from any goroutine.
func (r *Reader) Stats() Stats {
	s := Stats{
		Bytes:      r.bytes.Load(),
		Total:      r.total,
		Lines:      r.read.Load(),
		Malformed:  r.malformed.Load(),
		Own:        r.own.Load(),
		Dropped:    r.dropped.Load(),
		OutOfOrder: r.outOfOrder.Load(),
		Disorder:   time.Duration(r.disorder.Load()),
		Formats:    slices.Clone(r.formats),
	}
	if s.Total >= 0 {
		s.Total = max(s.Total, s.Bytes) // a log that grows
	}
	return s
}

// Close closes the files. It must not be called while Next runs.
func (r *Reader) Close() error {
	var all error
	for _, s := range slices.Concat(r.open, r.closed) {
		if err := s.shut(); err != nil && !errors.Is(err, fs.ErrClosed) {
			all = errors.Join(all, err)
		}
	}
	r.open, r.closed, r.given = nil, nil, -1
	return all
}

// A merge is a heap of files by their earliest line; of equal times the file that is named first comes first.
type merge []*source

func (m merge) Len() int { return len(m) }
func (m merge) Less(i, j int) bool {
	return m[i].head < m[j].head || m[i].head == m[j].head && m[i].file < m[j].file
}
func (m merge) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m *merge) Push(s any)   { *m = append(*m, s.(*source)) }
func (m *merge) Pop() any {
	last := len(*m) - 1
	s := (*m)[last]
	(*m)[last] = nil
	*m = (*m)[:last]
	return s
}
