package docsync

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/plaintext"
)

const (
	maxTries   = 5
	firstPause = time.Second // doubled after each try
	maxPause   = time.Minute // limit for Retry-After
	maxAnswer  = 1 << 20     // bytes of an answer that are read; 500 item problems fit
	maxMessage = 300         // bytes of a server's message that are shown
)

// An answer is the response to a request.
type answer struct {
	status int
	header http.Header
	body   []byte // cut off at maxAnswer
}

// documents is the path of the documents below /v1/wp.
const documents = "documents"

// sendBatch sends a batch. Its error is that of sendRetrying.
func (s *Sync) sendBatch(ctx context.Context, method string, b *batch) (answer, error) {
	return s.sendRetrying(ctx, method, documents, b.json(), len(b.ids) > 1)
}

// sendRetrying sends one request and retries it after errors that may be temporary. Requests of a
// sync are idempotent. The error is ErrInterrupted, a *Failure, or, if canSplit is set, a
// *slowError for a body that took too long to upload.
func (s *Sync) sendRetrying(ctx context.Context, method, path string, body []byte, canSplit bool) (answer, error) {
	for try := 1; ; try++ {
		a, err := s.once(ctx, method, path, body)
		reason := ""
		var f *Failure
		var slow *slowError
		switch {
		case errors.As(err, &f):
			return a, f
		case err != nil && ctx.Err() != nil:
			return a, ErrInterrupted
		case errors.As(err, &slow) && canSplit:
			s.mu.Lock()
			s.report(Retry{slow.Error() + ", now in halves", 0})
			s.mu.Unlock()
			return a, slow
		case err != nil:
			reason = s.printable(unwrap(err).Error())
		case a.status >= 500 && a.status != http.StatusInsufficientStorage:
			reason = s.refusal(a)
		default:
			return a, nil
		}
		if try == maxTries {
			return a, &Failure{fmt.Errorf("%s %s: %s, %d times", method, s.endpoint(path), reason, try), "run the same command again to go on"}
		}
		pause := max(firstPause<<(try-1), min(retryAfter(a.header), maxPause))
		s.mu.Lock()
		s.report(Retry{reason, pause})
		s.mu.Unlock()
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return a, ErrInterrupted
		}
	}
}

func (s *Sync) once(ctx context.Context, method, path string, body []byte) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.endpoint(path), bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Authorization", "Bearer "+s.o.Token)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("User-Agent", "weir-sync")
	client := *s.o.Client
	// never send the token to another host
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	a := answer{status: response.StatusCode, header: response.Header}
	a.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if a.status >= 300 {
		err = nil // the status is enough
	}
	return a, err
}

func (s *Sync) endpoint(path string) string { return s.o.To.JoinPath("v1/wp", path).String() }

// refusal returns an error answer as printable text.
func (s *Sync) refusal(a answer) string {
	text := fmt.Sprintf("the server answered %d %s", a.status, http.StatusText(a.status))
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(a.body, &body) == nil && body.Error.Message != "" {
		return text + ": " + s.printable(body.Error.Message)
	}
	if plain := strings.TrimSpace(string(a.body)); plain != "" && !strings.HasPrefix(plain, "<") && !strings.HasPrefix(plain, "{") {
		return text + ": " + s.printable(plain)
	}
	return text
}

// acknowledges reports whether a 200 answer accounts for all n documents of a batch as the
// bulk-sync API does. Another server at that address must not pass for it, or the state would
// contain documents that the server does not have.
func acknowledges(method string, a answer, n int) bool {
	var body struct {
		Created   *int `json:"created"`
		Updated   *int `json:"updated"`
		Unchanged *int `json:"unchanged"`
		Deleted   *int `json:"deleted"`
	}
	media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	if media != "application/json" || len(a.body) == maxAnswer || json.Unmarshal(a.body, &body) != nil {
		return false
	}
	within := func(count *int) bool { return count != nil && 0 <= *count && *count <= n }
	if method == http.MethodDelete {
		return within(body.Deleted) // ids that did not exist do not count
	}
	return within(body.Created) && within(body.Updated) && within(body.Unchanged) && *body.Created+*body.Updated+*body.Unchanged == n
}

// printable returns a message of a server or the network on one line, without control characters
// and without the token.
func (s *Sync) printable(text string) string {
	return plaintext.Line(strings.ReplaceAll(text, s.o.Token, "…"), maxMessage)
}

// An itemProblem is the problem of one item in a 422 answer.
type itemProblem struct {
	Index  int    `json:"index"`
	Reason string `json:"reason"`
}

// itemProblems returns the reasons in a 422 answer by the index of the item, out of n.
func itemProblems(a answer, n int) map[int]string {
	var body struct {
		Error struct {
			Items []itemProblem `json:"items"`
		} `json:"error"`
	}
	if json.Unmarshal(a.body, &body) != nil {
		return nil
	}
	reasons := map[int]string{}
	for _, p := range body.Error.Items {
		if p.Index < 0 || p.Index >= n {
			continue
		}
		if reasons[p.Index] != "" {
			reasons[p.Index] += "; "
		}
		reasons[p.Index] += p.Reason
	}
	return reasons
}

// retryAfter returns the value of Retry-After, or 0 if it is missing or not a number of seconds.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// unwrap returns an http.Client's error without the method and URL, which the message has already.
func unwrap(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
