package rules

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/answer"
)

// An entry is the content of one line.
type entry struct {
	start    time.Time
	client   netip.Addr // zero: the connection has no address
	method   string
	path     string
	status   int
	bytes    int64
	duration time.Duration
	limiter  string
	agent    KeyedHash
	cost     Cost
	outcome  answer.Outcome
	host     string
	proto    string
	joined   *Joined // nil: nothing
	aborted  bool
}

func (e *entry) appendTime(b []byte, stamp string) []byte {
	b = append(b, stamp...)
	ms := e.start.Nanosecond() / 1e6
	return append(b, byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// appendMillis appends milliseconds with three decimals.
func appendMillis(b []byte, d time.Duration) []byte {
	us := d.Microseconds()
	b = strconv.AppendInt(b, us/1000, 10)
	return append(b, '.', byte('0'+us/100%10), byte('0'+us/10%10), byte('0'+us%10))
}

func (e *entry) appendText(b []byte, stamp string, want LogFields) []byte {
	b = append(b, "time="...)
	b = e.appendTime(b, stamp)
	b = append(b, " client="...)
	b = e.client.AppendTo(b)
	b = appendTextValue(append(b, " method="...), e.method, maxText)
	b = appendTextValue(append(b, " path="...), redacted(e.path), maxText)
	b = strconv.AppendInt(append(b, " status="...), int64(e.status), 10)
	b = strconv.AppendInt(append(b, " bytes="...), e.bytes, 10)
	b = append(appendMillis(append(b, " duration="...), e.duration), "ms"...)
	if e.limiter != "" {
		b = append(append(b, " limiter="...), e.limiter...)
	}
	if e.agent.known {
		b = e.agent.append(append(b, " agent="...))
	}
	if c := e.cost; c.Reserved > 0 {
		b = strconv.AppendInt(append(b, " reserved="...), c.Reserved, 10)
		if c.Used >= 0 {
			b = strconv.AppendInt(append(b, " cost="...), c.Used, 10)
		}
		if c.Used > c.Reserved {
			b = strconv.AppendInt(append(b, " overrun="...), c.Used-c.Reserved, 10)
		}
	}
	b = append(append(b, " outcome="...), e.outcome.String()...)
	b = appendTextValue(append(b, " host="...), e.host, maxText)
	b = append(append(b, " proto="...), e.proto...)
	if e.joined != nil {
		b = e.joined.appendText(b, want)
	}
	if e.aborted {
		b = append(b, " aborted=true"...)
	}
	return append(b, '\n')
}

func (e *entry) appendJSON(b []byte, stamp string, want LogFields) []byte {
	b = append(b, `{"time":"`...)
	b = e.appendTime(b, stamp)
	b = append(b, `","client":"`...)
	b = e.client.AppendTo(b)
	b = appendEscaped(append(b, `","method":"`...), e.method, maxText)
	b = appendEscaped(append(b, `","path":"`...), redacted(e.path), maxText)
	b = strconv.AppendInt(append(b, `","status":`...), int64(e.status), 10)
	b = strconv.AppendInt(append(b, `,"bytes":`...), e.bytes, 10)
	b = appendMillis(append(b, `,"duration_ms":`...), e.duration)
	if e.limiter != "" {
		b = append(append(append(b, `,"limiter":"`...), e.limiter...), '"')
	}
	if e.agent.known {
		b = append(e.agent.append(append(b, `,"agent":"`...)), '"')
	}
	if c := e.cost; c.Reserved > 0 {
		b = strconv.AppendInt(append(b, `,"reserved":`...), c.Reserved, 10)
		if c.Used >= 0 {
			b = strconv.AppendInt(append(b, `,"cost":`...), c.Used, 10)
		}
		if c.Used > c.Reserved {
			b = strconv.AppendInt(append(b, `,"overrun":`...), c.Used-c.Reserved, 10)
		}
	}
	b = append(append(b, `,"outcome":"`...), e.outcome.String()...)
	b = appendEscaped(append(b, `","host":"`...), e.host, maxText)
	b = append(append(append(b, `","proto":"`...), e.proto...), '"')
	if e.joined != nil {
		b = e.joined.appendJSON(b, want)
	}
	if e.aborted {
		b = append(b, `,"aborted":true`...)
	}
	return append(b, '}', '\n')
}

// append appends the hash in 16 hexadecimal digits.
func (a KeyedHash) append(b []byte) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[a.hash>>shift&15])
	}
	return b
}

// maxText is how many bytes of one value a line has at most.
const maxText = 1024

// appendTextValue appends at most limit bytes of a value, in quotes if it could be taken for more
// than one.
func appendTextValue(b []byte, s string, limit int) []byte {
	if !isPlain(s) || len(s) > limit {
		return append(appendEscaped(append(b, '"'), s, limit), '"')
	}
	return append(b, s...)
}

// isPlain reports whether a value needs no quotes.
func isPlain(s string) bool {
	for i := range len(s) {
		if quotedBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

// quotedBytes has the bytes for which a value is in quotes. Every line asks for each byte of a
// path.
var quotedBytes = func() (table [256]bool) {
	for c := range table {
		table[c] = c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\'
	}
	return table
}()

// escapedBytes has the bytes that are escaped between quotes.
var escapedBytes = func() (table [256]bool) {
	for c := range table {
		table[c] = c < ' ' || c >= 0x7f || c == '"' || c == '\\'
	}
	return table
}()

const hexDigits = "0123456789ABCDEF"

// appendEscaped appends s for use between quotes, in JSON too: printable ASCII as it is, every
// other byte as an escape, so that no value can end its quotes, its line, or move a terminal's
// cursor.
func appendEscaped(b []byte, s string, limit int) []byte {
	cut := len(s) > limit
	if cut {
		s = s[:limit]
	}
	for begin, i := 0, 0; ; i++ {
		if i < len(s) && !escapedBytes[s[i]] {
			continue
		}
		b = append(b, s[begin:i]...)
		if i == len(s) {
			break
		}
		if c := s[i]; c == '"' || c == '\\' {
			b = append(b, '\\', c)
		} else {
			b = append(b, `\u00`...)
			b = append(b, hexDigits[c>>4], hexDigits[c&15])
		}
		begin = i + 1
	}
	if cut {
		b = append(b, "..."...)
	}
	return b
}

// redacted hides what looks like a credential in a path: an API token or a JWT.
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
