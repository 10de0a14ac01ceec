package rules

import (
	"strings"
	"time"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// LogFields are the fields of an access log's line that can be switched off, as a set. The zero
// value is none of them.
type LogFields uint8

// The switchable fields, in the order in which a line has them. docs/operate.md describes them.
const (
	LogUserAgent LogFields = 1 << iota
	LogUpstream            // with its time
	LogRequestID
	LogTraceparent
	LogDenial
	LogCaller

	AllLogFields LogFields = 1<<iota - 1
)

var logFieldNames = [...]string{"user_agent", "upstream", "request_id", "traceparent", "denial", "caller"}

// LogFieldNames returns the names of the switchable fields, in the order of a line.
func LogFieldNames() []string { return logFieldNames[:] }

// LogFieldOf returns the field of a name; 0 if there is none.
func LogFieldOf(name string) LogFields {
	for i, known := range logFieldNames {
		if name == known {
			return 1 << i
		}
	}
	return 0
}

// How many bytes of a value that the client chooses a line has at most.
const (
	maxUserAgent = 256
	maxRequestID = 128
)

// A Joined is what a request has sent, and got, by which its line can be found in other logs.
type Joined struct {
	UserAgent, RequestID, Traceparent string
	Denial                            string
	Caller                            KeyedHash
	Upstream                          upstream.Address // the last one that was asked; zero: none

	// UpstreamTime is until the head of its answer, or its failure; 0: none was asked.
	UpstreamTime time.Duration

	traceparents int // how many were sent
}

// NoteField keeps a field of the request if the access log wants it. Names are compared in any
// case; of several lines the first counts.
func (r *Record) NoteField(want LogFields, name, value string) {
	switch len(name) {
	case len("User-Agent"):
		if want&LogUserAgent != 0 && r.UserAgent == "" && wire.EqualFold(name, "User-Agent") {
			r.UserAgent = value
		}
	case len("X-Request-Id"):
		if want&LogRequestID != 0 && r.RequestID == "" && wire.EqualFold(name, "X-Request-Id") {
			r.RequestID = value
		}
	case len("Traceparent"):
		if want&LogTraceparent != 0 && wire.EqualFold(name, "Traceparent") {
			r.traceparents++
			r.Traceparent = ""
			if r.traceparents == 1 && isTraceparent(value) {
				r.Traceparent = value
			}
		}
	}
}

// isTraceparent reports whether a value is a traceparent of version 00 (W3C Trace Context, section
// 3.2), or of a later one in that form.
func isTraceparent(s string) bool {
	if len(s) != 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if i != 2 && i != 35 && i != 52 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
}

// NoteJudged keeps what the limiter knows of the request after its decision, as far as the access
// log wants it.
func (r *Record) NoteJudged(o *Options, c *identity.Caller, a *answer.Answer) {
	r.NoteOutcome(a.Outcome)
	if o.AccessLog == nil {
		return
	}
	r.noteAgent(o, c)
	if o.LogFields&LogDenial != 0 {
		r.Denial = a.Denial()
	}
	if o.LogFields&LogCaller != 0 && o.CallerHash != nil {
		if who := a.Who(); who != nil {
			r.Caller.hash, r.Caller.known = o.CallerHash(who)
		}
	}
}

// appendText appends the switchable fields in text.
func (j *Joined) appendText(b []byte, want LogFields) []byte {
	if j.UserAgent != "" {
		b = appendTextValue(append(b, " user_agent="...), redacted(j.UserAgent), maxUserAgent)
	}
	if want&LogUpstream != 0 && j.UpstreamTime > 0 {
		if j.Upstream.Host != "" {
			b = append(b, " upstream="...)
			if isSocket(j.Upstream) {
				b = appendTextValue(b, j.Upstream.String(), maxText)
			} else {
				b = append(append(b, scheme(j.Upstream)...), j.Upstream.Host...)
			}
		}
		b = append(appendMillis(append(b, " upstream_time="...), j.UpstreamTime), "ms"...)
	}
	if j.RequestID != "" {
		b = appendTextValue(append(b, " request_id="...), redacted(j.RequestID), maxRequestID)
	}
	if j.Traceparent != "" {
		b = append(append(b, " traceparent="...), j.Traceparent...)
	}
	if j.Denial != "" {
		b = append(append(b, " denial="...), j.Denial...)
	}
	if j.Caller.known {
		b = j.Caller.append(append(b, " caller="...))
	}
	return b
}

// appendJSON appends them as members.
func (j *Joined) appendJSON(b []byte, want LogFields) []byte {
	if j.UserAgent != "" {
		b = append(appendEscaped(append(b, `,"user_agent":"`...), redacted(j.UserAgent), maxUserAgent), '"')
	}
	if want&LogUpstream != 0 && j.UpstreamTime > 0 {
		if j.Upstream.Host != "" {
			b = append(b, `,"upstream":"`...)
			if isSocket(j.Upstream) {
				b = appendEscaped(b, j.Upstream.String(), maxText)
			} else {
				b = append(append(b, scheme(j.Upstream)...), j.Upstream.Host...)
			}
			b = append(b, '"')
		}
		b = appendMillis(append(b, `,"upstream_time_ms":`...), j.UpstreamTime)
	}
	if j.RequestID != "" {
		b = append(appendEscaped(append(b, `,"request_id":"`...), redacted(j.RequestID), maxRequestID), '"')
	}
	if j.Traceparent != "" {
		b = append(append(append(b, `,"traceparent":"`...), j.Traceparent...), '"')
	}
	if j.Denial != "" {
		b = append(append(append(b, `,"denial":"`...), j.Denial...), '"')
	}
	if j.Caller.known {
		b = append(j.Caller.append(append(b, `,"caller":"`...)), '"')
	}
	return b
}

// isSocket reports whether an address is a Unix socket, which is logged by its path.
func isSocket(a upstream.Address) bool {
	_, ok := upstream.SocketOf(a.Host)
	return ok
}

func scheme(a upstream.Address) string {
	if a.TLS {
		return "https://"
	}
	return "http://"
}
