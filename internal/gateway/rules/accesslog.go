package rules

import (
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A LogFormat is how a line of the access log looks.
type LogFormat uint8

const (
	// LogText is key=value, with quotes where a value needs them, as log/slog's text handler
	// writes.
	LogText LogFormat = iota
	// LogJSON is one JSON object a line.
	LogJSON
)

// An AccessLog writes one line a request. Requests only copy their line into memory, and a
// goroutine of the log's own writes it, so a slow disk delays no request. Lines that do not fit
// into the bounded memory are dropped, and the log has a line with their number. It is safe for
// concurrent use.
type AccessLog struct {
	format LogFormat
	log    *slog.Logger
	w      io.Writer

	mu      sync.Mutex
	lines   []byte
	dropped int64 // lines, since the last line about dropped ones

	stamp atomic.Pointer[logStamp] // of the last second that was asked for
	rooms sync.Pool                // of *logRoom

	wake chan struct{} // there is a batch
	stop chan struct{}
	done chan struct{}
}

const (
	logMemory = 1 << 20 // each of two: one is filled while the other is written
	// logBatch is written at once. It is small, so that mostly the same memory is used, and is in
	// the caches.
	logBatch    = 32 << 10
	logInterval = 250 * time.Millisecond
	lastWrite   = 5 * time.Second // for the last lines, when the log is closed
)

// NewAccessLog returns a log to w and starts its goroutine, which ends with Close. A write that
// fails is reported to log (nil means slog.Default()) once, until a write succeeds.
func NewAccessLog(w io.Writer, format LogFormat, log *slog.Logger) *AccessLog {
	if log == nil {
		log = slog.Default()
	}
	l := &AccessLog{
		format: format,
		log:    log,
		w:      w,
		lines:  make([]byte, 0, logMemory),
		wake:   make(chan struct{}, 1),
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
		rooms:  sync.Pool{New: func() any { return &logRoom{make([]byte, 0, 1<<10)} }},
	}
	go l.run()
	return l
}

// Close writes what is left and ends the log; lines after it are dropped. It must be called once.
// If the writer does not take the last lines within 5 s, Close returns an error.
func (l *AccessLog) Close() error {
	close(l.stop)
	timer := time.NewTimer(lastWrite)
	defer timer.Stop()
	select {
	case <-l.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("close the access log: its last lines were not written within %v", lastWrite)
	}
}

func (l *AccessLog) run() {
	defer close(l.done)
	tick := time.NewTicker(logInterval)
	defer tick.Stop()
	spare := make([]byte, 0, logMemory)
	failing := false
	for {
		stopping := false
		select {
		case <-tick.C:
		case <-l.wake:
		case <-l.stop:
			stopping = true
		}
		spare = l.take(spare)
		if len(spare) > 0 {
			_, err := l.w.Write(spare)
			if err != nil && !failing {
				l.log.Error("cannot write the access log; its lines are lost", "error", err)
			}
			failing = err != nil
		}
		if stopping {
			return
		}
	}
}

// take returns the lines so far and replaces them by empty.
func (l *AccessLog) take(empty []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = empty[:0]
	if l.dropped > 0 {
		lines = l.appendDropped(lines)
		l.dropped = 0
	}
	return lines
}

func (l *AccessLog) appendDropped(b []byte) []byte {
	at := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	if l.format == LogJSON {
		return fmt.Appendf(b, `{"time":%q,"level":"WARN","msg":"access log lines dropped","lines":%d}`+"\n", at, l.dropped)
	}
	return fmt.Appendf(b, "time=%s level=WARN msg=\"access log lines dropped\" lines=%d\n", at, l.dropped)
}

// add takes one line.
func (l *AccessLog) add(e *entry, want LogFields) {
	stamp := l.stampOf(e.start)
	room := l.rooms.Get().(*logRoom)
	defer l.rooms.Put(room)

	line := room.line[:0]
	if l.format == LogJSON {
		line = e.appendJSON(line, stamp, want)
	} else {
		line = e.appendText(line, stamp, want)
	}
	room.line = line

	l.mu.Lock()
	if len(l.lines)+len(line) > logMemory-256 { // the line about dropped ones needs room
		l.dropped++
		l.mu.Unlock()
		return
	}
	begun := len(l.lines) < logBatch
	l.lines = append(l.lines, line...)
	full := begun && len(l.lines) >= logBatch
	l.mu.Unlock()
	if full {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// A logRoom is memory in which a line is put together before the log takes it. The parts of a line
// are bounded, so the memory is.
type logRoom struct{ line []byte }

// A logStamp is one second as lines have it.
type logStamp struct {
	unix int64
	text string
}

// stampOf returns the second of t as lines have it. It is the same for many lines.
func (l *AccessLog) stampOf(t time.Time) string {
	if s := l.stamp.Load(); s != nil && s.unix == t.Unix() {
		return s.text
	}
	s := &logStamp{t.Unix(), t.UTC().Format("2006-01-02T15:04:05.")}
	l.stamp.Store(s)
	return s.text
}
