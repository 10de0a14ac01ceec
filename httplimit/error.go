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

// WriteError answers with the body that every error has: {"error":{"code":…,"message":…}} (D21). It
// removes fields that describe another body, such as its length, coding and validators. Nothing may
// be written to w afterwards.
func WriteError(w http.ResponseWriter, status int, code, message string) {
	body := answer.ErrorBody(code, message)
	h := w.Header()
	for _, name := range bodyFields {
		delete(h, name)
	}
	h["Content-Type"] = []string{"application/json"}
	h["Cache-Control"] = []string{"no-store"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails if the client is gone, or for a HEAD
}
