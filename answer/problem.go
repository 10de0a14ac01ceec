package answer

import (
	"strings"

	"github.com/weirlimit/weir"
)

const problemType = "application/problem+json"

// problemBody returns a problem document (RFC 9457). Its members "code" and "violated-policies" are
// extensions: the code of the error object, and the names of the windows that refused, as
// RateLimit-Policy has them.
func problemBody(kind, title string, status int, code, detail string, violated []string) []byte {
	return encode(struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Detail   string   `json:"detail"`
		Code     string   `json:"code"`
		Violated []string `json:"violated-policies,omitempty"`
	}{kind, title, status, detail, code, violated})
}

// An accepted is the form of error that a request gets.
type accepted struct {
	problem bool
	vary    string // "Accept" if the request has chosen; else empty
}

// accept returns the form for a request with these lines of an Accept field.
func (w *prepared) accept(lines []string) accepted {
	if w.format == weir.FormatProblem {
		return accepted{problem: true}
	}
	if len(lines) > 0 && prefersProblem(lines) {
		return accepted{true, "Accept"}
	}
	return accepted{}
}

// prefersProblem reports whether an Accept field names problem documents with a higher weight than
// application/json, and with no lower one than its wildcards (RFC 9110, section 12.5.1).
func prefersProblem(lines []string) bool {
	problem, plain, wildcard := 0, -1, 0
	n := 0
	for _, line := range lines {
		for len(line) > 0 && n < maxMediaRanges {
			n++
			var member string
			member, line, _ = strings.Cut(line, ",")
			name, parameters, _ := strings.Cut(member, ";")
			switch name = strings.Trim(name, " \t"); {
			case strings.EqualFold(name, problemType):
				problem = mediaWeight(parameters)
			case strings.EqualFold(name, "application/json"):
				plain = mediaWeight(parameters)
			case strings.EqualFold(name, "application/*"), name == "*/*":
				wildcard = max(wildcard, mediaWeight(parameters))
			}
		}
	}
	return problem > max(plain, 0) && problem >= wildcard
}

// maxMediaRanges is how many members of an Accept field are read.
const maxMediaRanges = 32

// mediaWeight returns the weight among the parameters of a media range, in thousandths.
func mediaWeight(parameters string) int {
	for parameters != "" {
		var p string
		p, parameters, _ = strings.Cut(parameters, ";")
		if p = strings.Trim(p, " \t"); len(p) > 1 && p[0]|0x20 == 'q' && p[1] == '=' {
			return weight(p)
		}
	}
	return 1000
}

// statusTexts are the titles of problems that their status describes, as HTTP has them.
var statusTexts = map[int]string{401: "Unauthorized", 403: "Forbidden", 404: "Not Found"}

// Error returns the fields and the body of an error that is not the limiter's, in the form that the
// policy in force declares, or that the lines of the request's Accept field ask for. phrase is
// HTTP's for the status. code and text are those of the contract's error object (D21).
func (j *Judge) Error(accept []string, status int, phrase, code, text string) ([]Field, []byte) {
	form := j.preparedFor(j.decider.Responses()).accept(accept)
	var r refusal
	if form.problem {
		var more []Field
		if form.vary != "" {
			more = []Field{{"Vary", form.vary}}
		}
		r = newRefusal(problemType, problemBody(aboutBlank, phrase, status, code, text, nil), more)
	} else {
		r = newRefusal("application/json", ErrorBody(code, text))
	}
	return r.fields, r.body
}
