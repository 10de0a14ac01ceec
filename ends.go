package weir

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// An Align is when the windows of a limiter begin.
type Align uint8

const (
	// AlignRequest begins a window with its first request.
	AlignRequest Align = iota
	// AlignClock begins a window at a whole multiple of its length since 1970-01-01 00:00 UTC: a
	// minute at second 0, a day at midnight UTC.
	AlignClock
)

// ParseAlign parses an Align as a policy spells it: request or clock.
func ParseAlign(s string) (Align, error) {
	for a := AlignRequest; a <= AlignClock; a++ {
		if s == a.String() {
			return a, nil
		}
	}
	return 0, fmt.Errorf("align %q is unknown: request (a window begins with its first request) and clock (at a full minute, hour, …) are allowed", s)
}

// String returns the align as a policy file spells it: "request" or "clock".
func (a Align) String() string {
	switch a {
	case AlignRequest:
		return "request"
	case AlignClock:
		return "clock"
	}
	return fmt.Sprintf("Align(%d)", uint8(a))
}

// Ends are the seconds at which windows end by the clock, whoever opened them and when. They follow
// from the time alone, so stores that agree on the time agree on them. Ends are safe for concurrent
// use.
type Ends struct {
	every    int64 // windows end at its multiples; 0: at the begins of days of calendar
	calendar Calendar
	zone     *time.Location

	found atomic.Pointer[endsSpan] // of a calendar, the span that was asked for last
}

// An endsSpan is the time from one end to the next.
type endsSpan struct{ begin, end int64 }

// NewEnds returns when a window of l ends by the clock. It returns nil if the window ends one
// length after its first unit. It returns an error for a calendar that is not valid.
func NewEnds(l *Limiter, w *Window) (*Ends, error) {
	switch {
	case w.InFlight:
		return nil, nil
	case w.Calendar != Calendar{}:
		zone, err := w.Calendar.problem()
		if err != nil {
			return nil, err
		}
		return &Ends{calendar: w.Calendar, zone: zone}, nil
	case l.Align == AlignClock && w.Per >= time.Second:
		return &Ends{every: int64(w.Per / time.Second)}, nil
	}
	return nil, nil
}

// After returns the first end after now, in Unix seconds. It is not inlined, so that Charge.End is:
// nearly every window has no Ends.
//
//go:noinline
func (e *Ends) After(now int64) int64 {
	_, end := e.Span(now)
	return end
}

// Span returns the window that contains now: it begins at begin and has ended at end, in Unix
// seconds. It allocates once a window of a calendar, and never for other windows.
func (e *Ends) Span(now int64) (begin, end int64) {
	if e.every > 0 {
		since := now % e.every
		if since < 0 {
			since += e.every
		}
		return now - since, now - since + e.every
	}
	if s := e.found.Load(); s != nil && s.begin <= now && now < s.end {
		return s.begin, s.end
	}
	s := new(endsSpan)
	s.begin, s.end = e.calendar.span(now, e.zone)
	e.found.Store(s)
	return s.begin, s.end
}

// Longest returns the longest that a window can be, in seconds.
func (e *Ends) Longest() int64 {
	if e.every > 0 {
		return e.every
	}
	return int64((e.calendar.Unit.length() + dayChange) / time.Second)
}

// MarshalText implements encoding.TextMarshaler, for a store that counts in another process.
func (e *Ends) MarshalText() ([]byte, error) {
	if e.every > 0 {
		return fmt.Appendf(nil, "%s %d", clockWord, e.every), nil
	}
	return []byte(e.calendar.String()), nil
}

// clockWord begins the text of Ends at multiples of a length.
const clockWord = "every"

// UnmarshalText implements encoding.TextUnmarshaler: it reads what MarshalText has written. The
// error of another text contains it.
func (e *Ends) UnmarshalText(text []byte) error {
	words := strings.Fields(string(text))
	if len(words) == 2 && words[0] == clockWord {
		every, err := strconv.ParseInt(words[1], 10, 64)
		if err == nil && every > 0 && every <= int64(MaxSpan/time.Second) {
			*e = Ends{every: every}
			return nil
		}
	}
	if len(words) < 2 || words[0] != calendarWord {
		return fmt.Errorf("ends %q: %q and seconds, or a calendar, are allowed", text, clockWord)
	}
	calendar, err := parseCalendar(words[1:])
	if err != nil {
		return fmt.Errorf("ends %q: %w", text, err)
	}
	zone, err := calendar.problem()
	if err != nil {
		return fmt.Errorf("ends %q: %w", text, err)
	}
	*e = Ends{calendar: calendar, zone: zone}
	return nil
}

// endsText identifies when a window of l ends by the clock; it is empty if it does not.
func (l *Limiter) endsText(w Window) string {
	switch {
	case w.InFlight:
		return ""
	case w.Calendar != Calendar{}:
		return w.Calendar.String()
	case l.Align == AlignClock:
		return l.Align.String()
	}
	return ""
}

// endsOf returns the Ends of a window and the longest that it can be, in seconds. checkCalendar
// reports a calendar that is not valid.
func (c *checker) endsOf(l *Limiter, w Window) (*Ends, int64) {
	ends, err := NewEnds(l, &w)
	if err != nil || ends == nil {
		return nil, int64(w.Per / time.Second)
	}
	return ends, ends.Longest()
}
