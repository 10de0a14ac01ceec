package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/weirlimit/weir/internal/accesslog"
)

// ReadOptions select the lines that a Reading puts through a Replay.
type ReadOptions struct {
	// Log are the files and their fields. Malformed and Stop are ignored.
	Log accesslog.Options

	Since, Until time.Time // lines before Since, or at Until or later, are left out; zero: no bound
	Strict       bool      // end at the first malformed line

	Progress func(accesslog.Stats) // called now and then while lines are read; nil: not called
}

// maxExamples is how many malformed lines a report has.
const maxExamples = 10

// A Reading puts the lines of logs through a Replay. It is not safe for concurrent use.
type Reading struct {
	replay    *Replay
	reader    *accesslog.Reader
	o         ReadOptions
	malformed []BadLine // the first ones
	seen      []bool    // of the fields of the log, those that a line had
}

// Read opens logs for a Reading (see accesslog.Open). The caller closes it.
func (r *Replay) Read(ctx context.Context, o ReadOptions) (*Reading, error) {
	s := &Reading{replay: r, o: o, seen: make([]bool, len(o.Log.Fields))}
	log := o.Log
	log.Malformed, log.Stop = s.keep, ctx.Done()
	var err error
	s.reader, err = accesslog.Open(log)
	return s, err
}

// Close closes the logs.
func (s *Reading) Close() error { return s.reader.Close() }

// keep keeps a malformed line for the report.
func (s *Reading) keep(m accesslog.Malformed) {
	if len(s.malformed) < maxExamples {
		s.malformed = append(s.malformed, BadLine{File: m.File, Line: m.Line, Text: string(m.Text), Reason: m.Reason})
	}
}

// ErrInterrupted is the error of Run if its context has ended.
var ErrInterrupted = errors.New("interrupted")

// A MalformedError is the error of a strict Reading.
type MalformedError struct{ BadLine }

func (e *MalformedError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason) }

// Run passes every line to the engine. If it returns an error, the report is about a part of the
// log. The text of the error may repeat text of the log.
func (s *Reading) Run(ctx context.Context) error {
	since, until := int64(math.MinInt64), int64(math.MaxInt64)
	if !s.o.Since.IsZero() {
		since = s.o.Since.UnixNano()
	}
	if !s.o.Until.IsZero() {
		until = s.o.Until.UnixNano()
	}
	var line accesslog.Line
	for n := 0; ; n++ {
		if n%1024 == 0 && s.o.Progress != nil {
			s.o.Progress(s.reader.Stats())
		}
		err := s.reader.Next(&line)
		// An error may come from the interruption itself: Ctrl-C also ends a process that writes to
		// a pipe.
		if (n%1024 == 0 || err != nil) && ctx.Err() != nil {
			return ErrInterrupted
		}
		if s.o.Strict && len(s.malformed) > 0 {
			return &MalformedError{s.malformed[0]}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if line.Time < since || line.Time >= until {
			continue
		}
		for i := range s.seen {
			s.seen[i] = s.seen[i] || line.Field(i) != nil
		}
		if err := s.replay.Add(&line); err != nil {
			return err
		}
	}
}

// Unseen returns the indexes of the fields that no line had.
func (s *Reading) Unseen() (all []int) {
	for i, seen := range s.seen {
		if !seen {
			all = append(all, i)
		}
	}
	return all
}

// Report ends the Replay and returns its report (see Replay.Report), with the figures of the logs.
func (s *Reading) Report() (*Report, error) {
	r, err := s.replay.Report()
	if err != nil {
		return nil, err
	}
	stats := s.reader.Stats()
	r.Log.Files, r.Log.Formats = s.o.Log.Files, stats.Formats
	r.Log.Lines, r.Log.Malformed, r.Log.Own, r.Log.Dropped = stats.Lines, stats.Malformed, stats.Own, stats.Dropped
	r.Log.Examples = append([]BadLine{}, s.malformed...)
	return r, nil
}
