package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/httplimit"
)

// methods are the handlers of one path by method.
type methods map[string]http.HandlerFunc

// ServeHTTP calls the handler of the request's method, for HEAD that of GET. For other methods it
// answers 405.
func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if h := m[method]; h != nil {
		h(w, r)
		return
	}
	var allowed []string
	for method := range m {
		allowed = append(allowed, method)
		if method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	slices.Sort(allowed)
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", "Allowed here: "+list+".")
}

// refuse answers with an error, in the format of the public listener.
func refuse(w http.ResponseWriter, status int, code, message string) {
	httplimit.WriteError(w, status, code, message)
}

// answer answers with v as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // v has no JSON form
		refuse(w, http.StatusInternalServerError, "internal", "The response could not be encoded as JSON.")
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may be gone
}

// The types of bodies.
const (
	typeJSON = "application/json"
	typeYAML = "application/yaml"
)

// hasType reports whether Content-Type is want and nothing else. If not, it refuses the request.
func hasType(w http.ResponseWriter, r *http.Request, want string) bool {
	lines := r.Header.Values("Content-Type")
	if len(lines) == 1 && r.Header.Get("Content-Encoding") == "" {
		kind, parameters, err := mime.ParseMediaType(lines[0])
		charset, given := parameters["charset"]
		if err == nil && kind == want && (!given || strings.EqualFold(charset, "utf-8")) {
			return true
		}
	}
	refuse(w, http.StatusUnsupportedMediaType, "unsupported_media_type", fmt.Sprintf("The body must be %s, in UTF-8 and without a Content-Encoding.", want))
	return false
}

// body reads the whole body of at most limit bytes. If ok is false, it has refused the request.
func body(w http.ResponseWriter, r *http.Request, limit int64) (b []byte, ok bool) {
	tooLarge := func() {
		w.Header().Set("Connection", "close") // the rest of the body is not read
		refuse(w, http.StatusRequestEntityTooLarge, "payload_too_large", fmt.Sprintf("The body may have at most %d bytes.", limit))
	}
	if r.ContentLength > limit {
		tooLarge()
		return nil, false
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		tooLarge()
		return nil, false
	case err != nil:
		refuse(w, http.StatusBadRequest, "bad_request", "The body could not be read completely.")
		return nil, false
	}
	return b, true
}

// prefersYAML reports whether Accept names YAML, and does not rank JSON above it.
func prefersYAML(r *http.Request) bool {
	yaml, json := 0.0, 0.0
	for _, line := range r.Header.Values("Accept") {
		for _, element := range strings.Split(line, ",") {
			kind, parameters, err := mime.ParseMediaType(element)
			if err != nil {
				continue
			}
			q := 1.0
			if text, given := parameters["q"]; given {
				if q, err = strconv.ParseFloat(text, 64); err != nil || !(q >= 0 && q <= 1) {
					continue
				}
			}
			switch kind {
			case typeYAML:
				yaml = max(yaml, q)
			case typeJSON:
				json = max(json, q)
			}
		}
	}
	return yaml > 0 && yaml >= json
}
