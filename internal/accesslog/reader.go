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

// Bounds of the buffered lines of all files.
const (
	maxBuffered = 256 << 10 // lines
	maxPinned   = 64 << 20  // bytes
)

// A Reader returns the lines of many logs in order of time. It is not safe for concurrent use,
// except Stats.
type Reader struct {
	o         Options
	pool      blocks
	depackers depackers
	closed    []*source // files not yet open, in order of when they are due
	open      merge
	given     int32 // the record of open[0] that the caller uses; -1 for none
	returned  int64 // the latest time returned by Next
	waiting   int   // lines
	held      int   // their bytes

	formats    []string // per file
	total      int64    // bytes of all files; -1 if unknown
	bytes      atomic.Int64
	read       atomic.Int64
	malformed  atomic.Int64
	own        atomic.Int64
	dropped    atomic.Int64
	outOfOrder atomic.Int64
	disorder   atomic.Int64
}

// Stats are the progress of a Reader.
type Stats struct {
	Bytes int64 // bytes read of the files, before decompression
	Total int64 // size of all files; -1 with a file of unknown size, such as a pipe
	Lines int64 // lines read, including malformed ones and without blank ones

	Malformed  int64
	Own        int64         // lines of Weir's log that are not requests, such as on start and stop
	Dropped    int64         // requests that are missing in Weir's log, by its own count
	OutOfOrder int64         // lines returned after a later one
	Disorder   time.Duration // the max time by which one was late

	Formats []string // format of each file; empty for an empty file
}

// Open opens logs for reading and inspects the beginning of each. It returns an error that names
// the file if one cannot be read, is named twice, or has no known format. If Options.Format names a
// format, lines in another one are malformed and not an error. Open blocks until the first lines of
// a pipe arrive. The caller must call Close.
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
			err = fmt.Errorf("read %s: it is given twice", name)
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

// measure adds the size of a file to the total.
func (r *Reader) measure(s *source) {
	switch {
	case r.total < 0:
	case s.info == nil || !s.info.Mode().IsRegular():
		r.total = -1
	default:
		r.total += s.info.Size()
	}
}

// twice returns an error for two names of the same file.
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

// unknownFields returns an error for a field that no line of any file can have.
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

// Next stores the next line in l. Its slices are valid until Next is called again. After the last
// line it returns io.EOF. Any other error names the file that could not be read further, and the
// line. All lines before it have been returned, and Next may be called again to read the other
// files.
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
	if l.Time < r.returned {
		r.outOfOrder.Add(1)
		if by := r.returned - l.Time; by > r.disorder.Load() {
			r.disorder.Store(by)
		}
	} else {
		r.returned = l.Time
	}
	return nil
}

// forward releases the line that the caller used, and makes the next line the earliest of open[0].
// It returns the error with which a file ended.
func (r *Reader) forward() error {
	s := r.open[0]
	s.release(r.given)
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

// full reports whether no more lines can be buffered.
func (r *Reader) full() bool { return r.waiting >= maxBuffered || r.pool.pinned >= maxPinned }

// compact copies buffered lines out of blocks that hold little else: a single line whose time is
// far ahead would keep a whole block in use. reading is the file being read, which may not be in
// the merge yet.
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

// Stats returns the progress of the reader. It is safe for concurrent use.
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

// Close closes all files. It must not be called while Next runs.
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

// A merge is a heap of files by their earliest buffered line. If times are equal, the file named
// first comes first.
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
