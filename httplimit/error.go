package httplimit

import (
	"net/http"
	"strconv"

	"github.com/weirlimit/weir/answer"
)

// bodyFields describe a body. WriteError removes those that a handler has set for another body.
var bodyFields = [...]string{
	"Content-Encoding", "Content-Language", "Content-Disposition", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified", "Expires",
}

// WriteError answers with the body of the contract's errors: {"error":{"code":…,"message":…}}
// (D21). It removes fields that describe another body, such as its length, coding and validators.
// Nothing may be written to w afterwards.
func WriteError(w http.ResponseWriter, status int, code, message string) {
	body := answer.ErrorBody(code, message)
	WriteAnswer(w, status, []answer.Field{
		{Name: "Content-Type", Value: "application/json"},
		{Name: "Cache-Control", Value: "no-store"},
		{Name: "Content-Length", Value: strconv.Itoa(len(body))},
	}, body)
}

// WriteAnswer is WriteError for a body that is made already, with its fields (answer.Judge.Error).
func WriteAnswer(w http.ResponseWriter, status int, fields []answer.Field, body []byte) {
	h := w.Header()
	for _, name := range bodyFields {
		delete(h, name)
	}
	for _, f := range fields {
		if f.Name == "Vary" {
			h.Add(f.Name, f.Value)
		} else {
			h.Set(f.Name, f.Value)
		}
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails if the client is gone, or for a HEAD
}

// writeError answers in the form that the policy declares, or that the request asks for.
func (m *Middleware) writeError(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	fields, body := m.judge.Error(r.Header["Accept"], status, http.StatusText(status), code, message)
	WriteAnswer(w, status, fields, body)
}
