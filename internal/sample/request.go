package sample

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// A request is one HTTP request, with everything that an endpoint needs to know about it.
type request struct {
	*http.Request
	w          http.ResponseWriter
	now        time.Time // the time of everything that the request stores
	route      *route
	parameters []string             // of the path, in order
	session    sqlite.Session       // for a route that requires a session
	token      identity.TokenClaims // for a route that requires a token
	query      url.Values
}

// parseQuery refuses parameters that the route does not accept, so that a misspelled cursor is not
// ignored. agent_id is accepted on every request, because callers are counted by it.
func (r *request) parseQuery() error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refuse(http.StatusBadRequest, "the query %s cannot be read: %v", show(r.URL.RawQuery), err)
	}
	for name, values := range query {
		switch {
		case name == "agent_id":
		case !slices.Contains(r.route.query, name):
			return refuse(http.StatusBadRequest, "unknown query parameter %s: %s", show(name), allowed(r.route.query))
		case len(values) > 1:
			return refuse(http.StatusBadRequest, "query parameter %q appears %d times: give it once", name, len(values))
		}
	}
	r.query = query
	return nil
}

func allowed(names []string) string {
	if len(names) == 0 {
		return "this endpoint takes none"
	}
	return "allowed are " + strings.Join(names, ", ")
}

// limit returns the max number of rows of a page, from the query.
func (r *request) limit(usual, most int) (int, error) {
	given := r.query.Get("limit")
	if given == "" {
		return usual, nil
	}
	n, ok := wholeNumber(given)
	if !ok || n < 1 || n > int64(most) {
		return 0, refuse(http.StatusBadRequest, "query parameter \"limit\" is %s: expected a whole number from 1 to %d", show(given), most)
	}
	return int(n), nil
}

// wholeNumber parses a number of at least 0 in its one canonical spelling: no sign, no leading
// zero.
func wholeNumber(s string) (n int64, ok bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == s
}

// form parses the body as one JSON object. The endpoint reports the problems of the form with
// check.
func (r *request) form() (*form, error) {
	body, err := r.json()
	if err != nil {
		return nil, err
	}
	if body == nil {
		return nil, refuse(http.StatusBadRequest, "the body is empty: expected a JSON object")
	}
	f, err := newForm(body)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "the body: %v", err)
	}
	return f, nil
}

// optionalForm is form for an endpoint whose body may be missing.
func (r *request) optionalForm() (*form, error) {
	body, err := r.json()
	if err != nil {
		return nil, err
	}
	if body == nil {
		body = json.RawMessage("{}")
	}
	f, err := newForm(body)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "the body: %v", err)
	}
	return f, nil
}

// check returns the problems of a form as one refusal, or nil for a form without any.
func check(f *form) error {
	if problems := f.done(); len(problems) > 0 {
		return refuse(http.StatusBadRequest, "%s", strings.Join(problems, "; "))
	}
	return nil
}

// json reads the body, which must be uncompressed JSON in UTF-8 and no larger than the route
// allows. It returns nil for an empty body.
func (r *request) json() (json.RawMessage, error) {
	if r.ContentLength > r.route.body {
		return nil, tooLarge(r.route.body)
	}
	// Even "identity" is refused, which must not be sent (RFC 9110, section 8.4).
	if encoding := r.Header.Values("Content-Encoding"); len(encoding) > 0 {
		r.w.Header().Set("Accept-Encoding", "identity")
		return nil, refuse(http.StatusUnsupportedMediaType, "Content-Encoding is %s: send the body as it is", show(strings.Join(encoding, ", ")))
	}
	if r.ContentLength > 0 {
		if err := r.mediaType(); err != nil {
			return nil, err
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(r.w, r.Body, r.route.body))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge(r.route.body)
	// This case is before the next, because the deadline ends the context as well.
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.w.Header().Set("Connection", "close")
		return nil, refuse(http.StatusRequestTimeout, "the body arrived too slowly, or stopped arriving")
	case r.Context().Err() != nil:
		return nil, r.Context().Err()
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "the body ended early: it must have the length that its header gives, and arrive in time")
	case len(body) == 0:
		return nil, nil
	}
	if err := r.mediaType(); err != nil { // for a body whose length was not known before
		return nil, err
	}
	if err := grammar(body); err != nil {
		return nil, refuse(http.StatusBadRequest, "the body %v", err)
	}
	return body, nil
}

func tooLarge(most int64) error {
	return refuse(http.StatusRequestEntityTooLarge, "the body is larger than the %d bytes that this endpoint takes", most)
}

// mediaType refuses a body whose Content-Type is not JSON in UTF-8.
func (r *request) mediaType() error {
	given := r.Header.Values("Content-Type")
	if len(given) == 1 {
		media, parameters, err := mime.ParseMediaType(given[0])
		charset, ok := parameters["charset"]
		if err == nil && media == "application/json" && (!ok || strings.EqualFold(charset, "utf-8")) {
			return nil
		}
	}
	sent := "missing"
	if len(given) > 0 {
		sent = show(strings.Join(given, ", "))
	}
	return refuse(http.StatusUnsupportedMediaType, "Content-Type is %s: expected application/json in UTF-8", sent)
}

// formatTime formats a time for answers.
func formatTime(t time.Time) string {
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
