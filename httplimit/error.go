package httplimit

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
)

// WriteError answers with the shape that all errors have (D21): {"error":{"code":…,"message":…}}. What a handler has said
// of another body (its length, coding, validators) is taken back. It is the whole answer: call nothing after it.
func WriteError(w http.ResponseWriter, status int, code, message string) {
	body := errorBody(code, message)
	h := w.Header()
	for _, name := range [...]string{"Content-Encoding", "Content-Language", "Content-Disposition", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified", "Expires"} {
		delete(h, name)
	}
	h["Content-Type"] = []string{"application/json"}
	h["Cache-Control"] = []string{"no-store"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone, or a HEAD
}

// errorBody writes the JSON of an error. Invalid UTF-8 becomes U+FFFD; "<" stays as it is, since nobody takes this for
// HTML.
func errorBody(code, message string) []byte {
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	body.Error.Code, body.Error.Message = code, message
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(body) // two strings always encode
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// ErrorBody returns the body that WriteError writes, for answers that are not written through net/http.
func ErrorBody(code, message string) []byte { return errorBody(code, message) }
