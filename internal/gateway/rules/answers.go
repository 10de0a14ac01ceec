package rules

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/internal/upstream"
)

// An Answer is one of the gateway's own, before the fields of the limiter, of browsers and of the
// connection are put in.
type Answer struct {
	Status int
	Fields []answer.Field // names are in canonical form

	Code, Message string // of an error (D21); empty: Text is the body
	Text          string

	// Closes is true if the connection ends with the answer, because what the client sends next
	// cannot be read.
	Closes bool
}

// Misdirects reports whether the answer sends the client to another connection, or to none: 421. It
// is false for nil, the backend's answer.
func (a *Answer) Misdirects() bool { return a != nil && a.Status == http.StatusMisdirectedRequest }

// Append appends the fields of an answer to dst, and returns its body. accept are the lines of the
// request's Accept field, which may choose the form of an error.
func (r *Rules) Append(dst []answer.Field, a *Answer, accept []string) ([]answer.Field, []byte) {
	dst = append(dst, a.Fields...)
	if a.Code == "" {
		return dst, []byte(a.Text)
	}
	fields, body := r.Limit.Judge().Error(accept, a.Status, http.StatusText(a.Status), a.Code, a.Message)
	return append(dst, fields...), body
}

// AllMethods are the methods that every gateway accepts, as Allow has them.
const AllMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// The answers of our own that are always the same. Nothing may change them.
var (
	ambiguousPath = Answer{Status: http.StatusBadRequest, Code: "invalid_request",
		Message: "The request's path can be read in more than one way. Send it without escaped slashes, backslashes, control characters, dot segments, segments of ;parameters or blanks alone, or doubly escaped characters."}
	// With paths as sent: no backend can be sent the first, and the second could be charged to more
	// than one limiter or parameter.
	unsafePath = Answer{Status: http.StatusBadRequest, Code: "invalid_request",
		Message: "The request's path can be read in more than one way. Send it without dot segments, segments that have no name, two slashes at its beginning, backslashes, control characters, and characters that are escaped more than three times."}
	unclearPath = Answer{Status: http.StatusBadRequest, Code: "invalid_request",
		Message: "The request's path can be read in more than one way, and its limit depends on that. Send it without empty segments, escaped slashes, and characters that are escaped more than once or are not UTF-8."}
	ambiguousAgent = Answer{Status: http.StatusBadRequest, Code: "invalid_request",
		Message: "The request's query can be read as naming more than one agent. Send agent_id once, in exactly this spelling, percent-encoded, and without a semicolon."}
	upstreamTimeout = Answer{Status: http.StatusGatewayTimeout, Code: "upstream_timeout",
		Message: "The service behind this address did not answer in time. Please try again."}
	upstreamUnavailable = Answer{Status: http.StatusBadGateway, Code: "upstream_unavailable",
		Message: "The service behind this address is not available. Please try again later."}

	bodyBroken = Answer{Status: http.StatusBadRequest, Code: "invalid_request", Closes: true,
		Message: "The request body ended early or is malformed."}
	bodySlow = Answer{Status: http.StatusRequestTimeout, Code: "request_timeout", Closes: true,
		Message: "The request body arrived too slowly, or stopped arriving."}

	// Panicked answers a request whose handler panicked.
	Panicked = Answer{Status: http.StatusInternalServerError, Code: "internal", Message: "Something went wrong on our side. Please try again later."}
	// Unjudged answers a request that the limiter could not judge because it was asked wrongly.
	Unjudged = Answer{Status: http.StatusInternalServerError, Code: "internal", Message: "The limits of this request could not be checked."}
)

// unreadable returns the answer to a path that is Unreadable.
func (r *Rules) unreadable(asked *target.Request) *Answer {
	switch {
	case r.Paths != target.AsSent:
		return &ambiguousPath
	case asked.Raw != "":
		return &unsafePath
	}
	return &unclearPath
}

// unknownMethod returns the answer to a method that is not one of those accepted, which are a list.
func unknownMethod(accepted string) Answer {
	return Answer{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Fields: []answer.Field{{Name: "Allow", Value: accepted}},
		Message: "This method is not known here. Methods are written in capital letters: " + accepted + "."}
}

// serverOptions returns the answer to OPTIONS *.
func serverOptions(accepted string) Answer {
	return Answer{Status: http.StatusNoContent, Fields: []answer.Field{{Name: "Allow", Value: accepted}}}
}

// ambiguousQuery returns the answer to a query that can be read in more than one way for a
// parameter that its limiter counts by; an empty name means the agent.
func ambiguousQuery(parameter string) *Answer {
	if parameter == "" {
		return &ambiguousAgent
	}
	return &Answer{Status: http.StatusBadRequest, Code: "invalid_request",
		Message: fmt.Sprintf("The request's query can be read as having more than one value of %[1]s. Send %[1]s once, in exactly this spelling, percent-encoded, and without a semicolon.", parameter)}
}

// RejectMalformed answers a message that HTTP does not allow, and counts it. It is outside all
// limits, and the connection ends with it: where the next request begins is not known. reason is
// lower case, without what was sent.
func (r *Rules) RejectMalformed(status int, reason string) *Answer {
	r.Malformed.Add(status)
	return &Answer{Status: status, Code: "invalid_request", Message: "This request is not accepted: " + reason + ".", Closes: true}
}

// BodyTooLarge answers a request whose body is longer than limit.
func BodyTooLarge(limit int64) *Answer {
	return &Answer{Status: http.StatusRequestEntityTooLarge, Code: "payload_too_large",
		Message: fmt.Sprintf("The request body is larger than the %d bytes that are allowed here.", limit)}
}

// BodyFailed answers a request whose body did not arrive whole. err is why: an *http.MaxBytesError,
// a time-out, or another.
func BodyFailed(err error) *Answer {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return BodyTooLarge(large.Limit)
	case pace.IsTimeout(err):
		return &bodySlow
	}
	return &bodyBroken
}

// NoUpstream counts that the upstream of a site did not answer, and returns what the client is
// answered. at is the address that was asked last; zero: none could be connected to, which err
// reports. Of an outage the log has the first request of each kind and a summary.
func (r *Rules) NoUpstream(s *Site, method string, at upstream.Address, err error) *Answer {
	what, answer := "the upstream is not available", &upstreamUnavailable
	if pace.IsTimeout(err) {
		what, answer = "the upstream did not answer in time", &upstreamTimeout
	}
	if s.outage.note(answer.Status, err, s, r.Log) {
		all := []any{"site", s.name(), "method", method}
		if at.Host != "" {
			all = append(all, "upstream", at.String())
		}
		r.Log.Warn(what, append(all, "error", err)...)
	}
	s.Unanswered.Add(answer.Status)
	return answer
}
