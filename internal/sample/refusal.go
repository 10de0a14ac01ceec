package sample

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// A refusal is an error whose message is sent to the caller.
type refusal struct {
	status  int
	message string
	items   []itemProblem // the problems of a bulk request
}

// An itemProblem is one problem of one item of a bulk request.
type itemProblem struct {
	Index  int    `json:"index"`        // from 0
	ID     string `json:"id,omitempty"` // as sent; empty if it could not be read
	Reason string `json:"reason"`
}

func (r *refusal) Error() string { return r.message }

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, message: fmt.Sprintf(format, args...)}
}

// codes are the error codes of the statuses that this backend answers.
var codes = map[int]string{
	http.StatusBadRequest:            "invalid_request",
	http.StatusUnauthorized:          "unauthenticated",
	http.StatusNotFound:              "not_found",
	http.StatusRequestTimeout:        "request_timeout",
	http.StatusMethodNotAllowed:      "method_not_allowed",
	http.StatusConflict:              "conflict",
	http.StatusGone:                  "gone",
	http.StatusRequestEntityTooLarge: "payload_too_large",
	http.StatusUnsupportedMediaType:  "unsupported_media_type",
	http.StatusUnprocessableEntity:   "unprocessable",
	http.StatusInternalServerError:   "internal",
	http.StatusServiceUnavailable:    "store_unavailable",
	http.StatusInsufficientStorage:   "storage_full",
}

// fail answers err. It sends a refusal as it is and describes known database errors; it logs any
// other error and answers 500 without the cause. If the client has disconnected, fail panics with
// http.ErrAbortHandler, so that the access log has status 499.
func (b *Backend) fail(r *request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	refused := b.explain(r, err)
	if len(refused.items) == 0 {
		httplimit.WriteError(r.w, refused.status, codes[refused.status], refused.message)
		return
	}
	var answer struct {
		Error struct {
			Code    string        `json:"code"`
			Message string        `json:"message"`
			Items   []itemProblem `json:"items"`
		} `json:"error"`
	}
	answer.Error.Code, answer.Error.Message, answer.Error.Items = codes[refused.status], refused.message, refused.items
	r.answer(refused.status, answer)
}

func (b *Backend) explain(r *request, err error) *refusal {
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return refuse(http.StatusServiceUnavailable, "the request ended before it could be answered; nothing was stored")
	case errors.Is(err, sqlite.ErrBusy):
		b.log.Warn("sample backend: database busy", "route", r.route.String(), "error", err)
		return refuse(http.StatusServiceUnavailable, "the database is busy and nothing was stored: send the request again")
	// A newer weir uses this data directory too.
	case errors.Is(err, sqlite.ErrReindexed):
		b.log.Error("sample backend: replaced", "route", r.route.String(), "error", err)
		return refuse(http.StatusServiceUnavailable, "this server is being replaced by a newer one and nothing was stored: send the request again")
	case errors.Is(err, sqlite.ErrFull):
		return b.full(r, err)
	}
	b.log.Error("sample backend: request failed", "route", r.route.String(), "error", err)
	return refuse(http.StatusInternalServerError, "the server could not answer this request; its log has the cause")
}

// answer writes value as JSON. Answers contain private data, so caches must not store them.
func (r *request) answer(status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	h := r.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	r.w.WriteHeader(status)
	_, _ = r.w.Write(append(body, '\n')) // the client has left, or it has the answer
	return nil
}

// empty writes a 204.
func (r *request) empty() error {
	r.w.Header().Set("Cache-Control", "no-store")
	r.w.WriteHeader(http.StatusNoContent)
	return nil
}
