package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"time"
)

// A source is one file of the merge. Open inspects its beginning and closes it, and the merge opens
// it again when it is due. A file that cannot be opened twice (standard input, a pipe) stays open.
type source struct {
	r      *Reader
	file   int         // index into Options.Files
	name   string      // for messages
	info   fs.FileInfo // as of Open; nil if there is none
	format *format
	// nanoseconds by which lines may be late and are still sorted; negative: not sorted
	slack int64
	due   int64 // when to open the file: no line is earlier

	input   io.Reader // the file, with reads counted; nil while it is closed
	close   func() error
	packing int
	lines   lines
	ahead   []sampled // lines that Open has read and cannot read again
	parser  parser

	order  order
	head   int64 // the time of the earliest buffered line
	latest int64 // the latest accepted time; the min value before the first
	way    direction
	agents bool // a line had a User-Agent, so a line without one means that the client sent none
	doubts doubts
	begin  [shown]byte // beginning of the current line, before parsing
	ended  bool
	err    error // the error with which the file ended; nil at its end
}

// A counted reader counts the bytes read of a file and detects that the file shrinks. Then the
// unread part is lost, although reading would just come to an early end. Log rotation does that by
// copying and truncating (logrotate's copytruncate).
type counted struct {
	from io.Reader
	r    *Reader
	size int64 // the largest size seen; -1 for a file without one
}

func newCounted(s *source) *counted {
	c := &counted{from: s.input, r: s.r, size: -1}
	if s.info != nil && s.info.Mode().IsRegular() {
		c.size = s.info.Size()
	}
	return c
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	if f, ok := c.from.(*os.File); ok && c.size >= 0 {
		info, statErr := f.Stat()
		if statErr != nil {
			return 0, statErr
		}
		// the bytes just read may be of a log that was started over
		if size := info.Size(); size < c.size {
			return 0, fmt.Errorf("it has shrunk from %d to %d bytes while it was read: the rest is lost", c.size, size)
		}
		c.size = info.Size()
	}
	c.r.bytes.Add(int64(n))
	return n, err
}

// smallReads reads little at a time, for a file that is only inspected.
type smallReads struct{ from io.Reader }

func (s smallReads) Read(b []byte) (int, error) { return s.from.Read(b[:min(len(b), 16<<10)]) }

// inspect opens a file, detects its format and first time, and closes the file if it can be opened
// again. It reports whether the file has any lines.
func (s *source) inspect(choices []format) (holds bool, err error) {
	twice, err := s.openFirst()
	if err != nil {
		return false, err
	}
	defer func() {
		if twice || err != nil || !holds {
			err = errors.Join(err, s.shut())
		}
	}()
	if err := s.start(twice); err != nil {
		return false, fmt.Errorf("read %s: %w", s.name, err)
	}
	var d detected
	var seen []sampled
	for _, max := range []int{firstSample, lastSample} {
		more := sampling(&s.lines, max-len(seen))
		seen = append(seen, more.lines...)
		if d = choose(seen, choices, s.r.o.Fields); d.requests > 0 {
			break
		}
		if more.err != nil && !errors.Is(more.err, io.EOF) {
			return false, fmt.Errorf("read %s, line %d: %w", s.name, s.lines.number+1, more.err)
		}
	}
	if len(seen) == 0 {
		return false, nil
	}
	first := d.first
	s.format, s.agents = d.format, d.agents
	switch {
	case s.format != nil:
	case len(choices) > 1:
		return false, s.unknown(seen)
	// the format is given, so all these lines are malformed, and those after them may have any time
	default:
		s.format, first = &choices[0], math.MinInt64/2
	}
	s.slack = int64(s.r.o.Reorder)
	if s.slack == 0 {
		s.slack = int64(time.Second)
		if s.format.begun {
			s.slack = int64(30 * time.Second)
		}
	}
	s.due = first - max(s.slack, 0)
	if !twice {
		s.ahead = seen
	}
	return true, nil
}

// unknown returns the error for a file that has none of the known formats.
func (s *source) unknown(seen []sampled) error {
	line, cut := seen[0].text, ""
	if len(line) > shown {
		line, cut = line[:shown], "..."
	}
	return fmt.Errorf("read %s: none of its first %d lines has a format that is known (%s); the first is %q%s",
		s.name, len(seen), strings.Join(Formats()[1:], ", "), line, cut)
}

// A detected holds what the beginning of a file shows.
type detected struct {
	format   *format // nil if no line has a known format
	requests int     // lines in that format
	own      int     // other lines of the server's log
	first    int64   // the earliest time of the requests
	agents   bool    // one of them has a User-Agent
}

// choose returns the format of most of the lines. Lines that are not requests count only if there
// are no others.
func choose(seen []sampled, choices []format, fields []string) (best detected) {
	var text []byte // a copy, because parsers change it
	for i := range choices {
		p := choices[i].open(fields)
		var r record
		d := detected{format: &choices[i]}
		for _, line := range seen {
			r.reset()
			r.ready(len(fields))
			text = append(text[:0], line.text...)
			if line.err != nil {
				continue
			}
			r.Duration = -1
			if err := p.parse(trimmed(text), &r); err != nil {
				if isOwn(err) {
					d.own++
				}
				continue
			}
			if d.requests++; d.requests == 1 || r.Time < d.first {
				d.first = r.Time
			}
			d.agents = d.agents || r.HasAgent
		}
		if d.requests > best.requests || d.requests == best.requests && d.own > best.own {
			best = d
		}
	}
	if best.requests == 0 {
		best.first = math.MinInt64 / 2 // later lines may have any time
	}
	return best
}

// isOwn reports whether a line is a message of the server itself.
func isOwn(err error) bool {
	_, own := err.(*ownLine)
	return own
}

// openFirst opens the file and reports whether it can be opened again.
func (s *source) openFirst() (twice bool, err error) {
	if s.name == "-" {
		s.name = "standard input"
		s.input, s.close = s.r.o.Stdin, func() error { return nil }
		if s.input == nil {
			return false, errors.New("read standard input: there is none")
		}
		if f, ok := s.input.(*os.File); ok {
			if info, err := f.Stat(); err == nil {
				s.info = info
			}
		}
		return false, nil
	}
	f, err := s.openNamed()
	if err != nil {
		return false, fmt.Errorf("read an access log: %w", err)
	}
	s.input, s.close = f, f.Close
	if s.info, err = f.Stat(); err == nil && s.info.IsDir() {
		err = errors.New("it is a directory: name the files in it")
	}
	if err != nil {
		return false, errors.Join(fmt.Errorf("read %s: %w", s.name, err), s.shut())
	}
	return s.info.Mode().IsRegular(), nil
}

// openNamed opens a file by name. For a pipe that blocks until there is a writer, or Stop is
// closed.
func (s *source) openNamed() (*os.File, error) {
	if info, err := os.Stat(s.name); err != nil || info.Mode().IsRegular() || s.r.o.Stop == nil {
		return os.Open(s.name)
	}
	type opened struct {
		f   *os.File
		err error
	}
	o, ok := await(s.r.o.Stop, func() opened {
		f, err := os.Open(s.name)
		return opened{f, err}
	})
	if !ok {
		return nil, fmt.Errorf("open %s: %w", s.name, ErrStopped)
	}
	return o.f, o.err
}

// open opens the file for the merge, unless it is open.
func (s *source) open() error {
	s.parser = s.format.open(s.r.o.Fields)
	if s.input != nil {
		return nil
	}
	f, err := os.Open(s.name)
	if err != nil {
		return fmt.Errorf("read an access log: %w", err)
	}
	s.input, s.close = f, f.Close
	info, err := f.Stat()
	switch {
	case err != nil:
	case !os.SameFile(info, s.info):
		err = errors.New("the file was replaced while the logs were read, as by rotation: read the logs again")
	case info.Size() < s.info.Size():
		err = fmt.Errorf("it has shrunk from %d to %d bytes since it was first opened", s.info.Size(), info.Size())
	default:
		err = s.start(false)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("read %s: %w", s.name, err), s.shut())
	}
	return nil
}

// start sets up the reading of the file. If look is set, the file is only inspected: reads are
// small and not counted.
func (s *source) start(look bool) (err error) {
	var from io.Reader = newCounted(s)
	if look {
		from = s.input
	}
	if s.r.o.Stop != nil && (s.info == nil || !s.info.Mode().IsRegular()) {
		from = &stoppable{from: from, stop: s.r.o.Stop}
	}
	text, packing, err := s.r.depackers.unpack(from)
	if err != nil {
		return err
	}
	if look {
		text = smallReads{text}
	}
	s.packing = packing
	s.lines = lines{from: text, pool: &s.r.pool}
	return nil
}

// shut closes the file.
func (s *source) shut() error {
	if s.input == nil {
		return nil
	}
	if s.lines.from != nil {
		s.lines.close()
		if look, ok := s.lines.from.(smallReads); ok {
			s.lines.from = look.from
		}
		s.r.depackers.put(s.lines.from, s.packing)
		s.lines.from = nil
	}
	s.input = nil
	if err := s.close(); err != nil {
		return fmt.Errorf("close %s: %w", s.name, err)
	}
	return nil
}

// fill reads until the earliest buffered line may be returned or the file has ended. It reports
// whether there is such a line.
func (s *source) fill() bool {
	for !s.ready() {
		switch {
		case s.settle():
		case s.ended:
			return s.earliest()
		default:
			s.read()
		}
	}
	return s.earliest()
}

// earliest sets head to the time of the earliest buffered line. It reports whether there is one.
func (s *source) earliest() bool {
	if s.order.len() == 0 {
		return false
	}
	s.head = s.order.at(s.order.first()).Time
	return true
}

// ready reports whether no unread line can come before the earliest buffered one, or the buffer is
// full.
func (s *source) ready() bool {
	if s.order.len() == 0 {
		return false
	}
	return s.slack < 0 || s.r.full() || s.order.at(s.order.first()).Time+s.slack <= s.latest
}

// read reads one line.
func (s *source) read() {
	line, in := s.next()
	switch {
	case errors.Is(line.err, errLong):
		s.malformed(&line, line.err)
		return
	case line.err != nil:
		s.end(line.err)
		return
	}
	if line.text = trimmed(line.text); len(line.text) == 0 {
		return
	}
	if !line.whole && s.lines.err != nil && !errors.Is(s.lines.err, io.EOF) {
		s.malformed(&line, errorString("cut off where reading failed"))
		return
	}
	if line.text[0] == 0 {
		s.malformed(&line, errorString("only NUL bytes, as after a crash"))
		return
	}
	i := s.order.room()
	rec := s.order.at(i)
	rec.ready(len(s.r.o.Fields))
	begins := copy(s.begin[:], line.text)
	rec.Duration = -1
	if err := s.parser.parse(line.text, rec); err != nil {
		s.order.drop(i)
		if own, ok := err.(*ownLine); ok {
			s.r.read.Add(1)
			s.r.own.Add(1)
			s.r.dropped.Add(own.dropped)
		} else {
			s.malformed(&line, err)
		}
		return
	}
	if s.way.note(rec.Time, s.slack); s.way.backwards(false) {
		s.order.drop(i)
		s.end(ErrNewestFirst)
		return
	}
	if rec.HasAgent {
		s.agents = true
	} else if s.agents && s.format.omits {
		rec.HasAgent = true
	}
	rec.File, rec.Number, rec.size, rec.in = s.file, line.number, len(line.text), in
	if in != nil {
		in.refs++
	}
	s.r.waiting++
	s.r.held += rec.size
	if len(s.doubts.waiting()) > 0 || rec.Time-farAhead > s.latest {
		s.doubt(i, begins)
	} else {
		s.take(i)
	}
	if s.r.pool.pinned > 1<<20+4*s.r.held {
		s.r.compact(s)
	}
}

// take buffers a record until no earlier one can follow.
func (s *source) take(i int32) {
	s.r.read.Add(1)
	if s.latest = max(s.latest, s.order.at(i).Time); s.slack < 0 {
		s.order.enqueue(i)
	} else {
		s.order.push(i)
	}
}

// release frees a record whose line is not used any more.
func (s *source) release(i int32) {
	rec := s.order.at(i)
	s.r.waiting--
	s.r.held -= rec.size
	if rec.in != nil {
		s.r.pool.release(rec.in)
	}
	s.order.drop(i)
}

// next returns the next line, and the block that contains it, if any.
func (s *source) next() (sampled, *block) {
	if len(s.ahead) > 0 {
		line := s.ahead[0]
		if s.ahead = s.ahead[1:]; len(s.ahead) == 0 {
			s.ahead = nil
		}
		return line, nil
	}
	text, err := s.lines.next()
	return sampled{text, s.lines.number, s.lines.whole, err}, s.lines.in
}

func (s *source) malformed(line *sampled, reason error) {
	s.r.read.Add(1)
	s.r.malformed.Add(1)
	if s.r.o.Malformed == nil {
		return
	}
	text := line.text[:min(len(line.text), shown)]
	s.r.o.Malformed(Malformed{File: s.r.o.Files[s.file], Line: line.number, Text: text, Reason: reasonFor(text, reason)})
}

// end marks the file as read and closes it.
func (s *source) end(err error) {
	s.ended = true
	if errors.Is(err, io.EOF) && s.way.backwards(true) {
		err = ErrNewestFirst
	}
	if errors.Is(err, ErrNewestFirst) {
		s.err = fmt.Errorf("read %s: %w", s.name, err)
	} else if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		s.err = fmt.Errorf("read %s, line %d: %w", s.name, s.lines.number+1, err)
	}
	s.err = errors.Join(s.err, s.shut())
}

// trimmed returns a line without leading NUL bytes, which a crash may leave.
func trimmed(line []byte) []byte {
	if len(line) > 0 && line[0] == 0 {
		if rest := bytes.TrimLeft(line, "\x00"); len(rest) > 0 {
			return rest
		}
	}
	return line
}
