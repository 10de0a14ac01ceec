package rules

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/httplimit"
)

// A LogFormat is how a line of the access log looks.
type LogFormat uint8

const (
	// LogText is key=value, with quotes where a value needs them, as log/slog's text handler writes.
	LogText LogFormat = iota
	// LogJSON is one JSON object a line.
	LogJSON
)

// An AccessLog writes one line a request. Requests only ever copy their line into memory; a goroutine of the log's own
// writes, so that a slow disk delays nobody. What does not fit into the bounded memory is dropped, and how much that was
// is said in the log. It is safe for concurrent use.
type AccessLog struct {
	format LogFormat
	log    *slog.Logger
	w      io.Writer

	mu      sync.Mutex
	lines   []byte
	dropped int64 // lines, since that was last said

	stamp atomic.Pointer[logStamp] // of the last second that was asked for

	wake chan struct{} // the memory is half full
	stop chan struct{}
	done chan struct{}
}

const (
	logMemory   = 1 << 20 // each of two: one is filled while the other is written
	logInterval = 250 * time.Millisecond
)

// NewAccessLog returns a log to w and starts its goroutine, which ends with Close. A write that errs is reported to log
// (nil means slog.Default()) once, until a write succeeds.
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
	}
	go l.run()
	return l
}

// Close writes what is left and ends the log; lines after it are dropped. It must be called once. A writer that does not
// take the last lines within 5 s is left behind, with an error.
func (l *AccessLog) Close() error {
	close(l.stop)
	timer := time.NewTimer(lastWait)
	defer timer.Stop()
	select {
	case <-l.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("close the access log: its last lines are not written after %v", lastWait)
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
				l.log.Error("the access log cannot be written, its lines are lost", "error", err)
			}
			failing = err != nil
		}
		if stopping {
			return
		}
	}
}

// take returns the lines so far and leaves empty in their place.
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

// An entry is what one line says.
type entry struct {
	start    time.Time
	client   netip.Addr // zero: the connection has no address
	method   string
	path     string
	status   int
	bytes    int64
	duration time.Duration
	limiter  string
	agent    agentHash
	outcome  httplimit.Outcome
	host     string
	proto    string
	aborted  bool
}

// add takes one line.
func (l *AccessLog) add(e *entry) {
	var room [768]byte // on the stack for all but absurd lines
	stamp := l.stampOf(e.start)

	var line []byte
	if l.format == LogJSON {
		line = e.appendJSON(room[:0], stamp)
	} else {
		line = e.appendText(room[:0], stamp)
	}

	l.mu.Lock()
	if len(l.lines)+len(line) > logMemory-256 { // room to say how much was dropped
		l.dropped++
		l.mu.Unlock()
		return
	}
	half := len(l.lines) < logMemory/2
	l.lines = append(l.lines, line...)
	half = half && len(l.lines) >= logMemory/2
	l.mu.Unlock()
	if half {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// A logStamp is how lines spell one second.
type logStamp struct {
	unix int64
	text string
}

// stampOf returns how the second of t is spelled, which is the same for many lines.
func (l *AccessLog) stampOf(t time.Time) string {
	if s := l.stamp.Load(); s != nil && s.unix == t.Unix() {
		return s.text
	}
	s := &logStamp{t.Unix(), t.UTC().Format("2006-01-02T15:04:05.")}
	l.stamp.Store(s)
	return s.text
}

func (e *entry) appendTime(b []byte, stamp string) []byte {
	b = append(b, stamp...)
	ms := e.start.Nanosecond() / 1e6
	return append(b, byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// appendDuration appends milliseconds with three decimals.
func (e *entry) appendDuration(b []byte) []byte {
	us := e.duration.Microseconds()
	b = strconv.AppendInt(b, us/1000, 10)
	return append(b, '.', byte('0'+us/100%10), byte('0'+us/10%10), byte('0'+us%10))
}

func (e *entry) appendText(b []byte, stamp string) []byte {
	b = append(b, "time="...)
	b = e.appendTime(b, stamp)
	b = append(b, " client="...)
	b = e.client.AppendTo(b)
	b = appendTextValue(append(b, " method="...), e.method)
	b = appendTextValue(append(b, " path="...), redacted(e.path))
	b = strconv.AppendInt(append(b, " status="...), int64(e.status), 10)
	b = strconv.AppendInt(append(b, " bytes="...), e.bytes, 10)
	b = append(e.appendDuration(append(b, " duration="...)), "ms"...)
	if e.limiter != "" {
		b = append(append(b, " limiter="...), e.limiter...)
	}
	if e.agent.known {
		b = e.agent.append(append(b, " agent="...))
	}
	b = append(append(b, " outcome="...), e.outcome.String()...)
	b = appendTextValue(append(b, " host="...), e.host)
	b = append(append(b, " proto="...), e.proto...)
	if e.aborted {
		b = append(b, " aborted=true"...)
	}
	return append(b, '\n')
}

func (e *entry) appendJSON(b []byte, stamp string) []byte {
	b = append(b, `{"time":"`...)
	b = e.appendTime(b, stamp)
	b = append(b, `","client":"`...)
	b = e.client.AppendTo(b)
	b = appendEscaped(append(b, `","method":"`...), e.method, maxText)
	b = appendEscaped(append(b, `","path":"`...), redacted(e.path), maxText)
	b = strconv.AppendInt(append(b, `","status":`...), int64(e.status), 10)
	b = strconv.AppendInt(append(b, `,"bytes":`...), e.bytes, 10)
	b = e.appendDuration(append(b, `,"duration_ms":`...))
	if e.limiter != "" {
		b = append(append(append(b, `,"limiter":"`...), e.limiter...), '"')
	}
	if e.agent.known {
		b = append(e.agent.append(append(b, `,"agent":"`...)), '"')
	}
	b = append(append(b, `,"outcome":"`...), e.outcome.String()...)
	b = appendEscaped(append(b, `","host":"`...), e.host, maxText)
	b = append(append(append(b, `","proto":"`...), e.proto...), '"')
	if e.aborted {
		b = append(b, `,"aborted":true`...)
	}
	return append(b, '}', '\n')
}

// append appends the hash in 16 hexadecimal digits.
func (a agentHash) append(b []byte) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[a.hash>>shift&15])
	}
	return b
}

// maxText is the most bytes of one value that a line shows.
const maxText = 1024

// appendTextValue appends a value, in quotes where it could be taken for more than one.
func appendTextValue(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\' {
			return append(appendEscaped(append(b, '"'), s, maxText), '"')
		}
	}
	if s == "" || len(s) > maxText {
		return append(appendEscaped(append(b, '"'), s, maxText), '"')
	}
	return append(b, s...)
}

const hexDigits = "0123456789ABCDEF"

// appendEscaped appends s for use between quotes, in JSON too: printable ASCII as it is, every other byte as an escape,
// so that no value can end its quotes, its line, or move a terminal's cursor.
func appendEscaped(b []byte, s string, most int) []byte {
	cut := len(s) > most
	if cut {
		s = s[:most]
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ' && c < 0x7f:
			b = append(b, c)
		default:
			b = append(b, `\u00`...)
			b = append(b, hexDigits[c>>4], hexDigits[c&15])
		}
	}
	if cut {
		b = append(b, "..."...)
	}
	return b
}

// redacted hides what looks like a credential that somebody put into a path: an API token or a JWT.
func redacted(path string) string {
	if !strings.Contains(path, "wpt_") && !strings.Contains(path, "eyJ") {
		return path
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if at := strings.Index(s, "wpt_"); at >= 0 {
			segments[i] = s[:at] + "wpt_REDACTED"
		} else if at := strings.Index(s, "eyJ"); at >= 0 && strings.Count(s[at:], ".") >= 2 {
			segments[i] = s[:at] + "JWT_REDACTED"
		}
	}
	return strings.Join(segments, "/")
}
