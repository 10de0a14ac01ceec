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
	mostTries  = 5
	firstPause = time.Second // doubled after each try
	mostPause  = time.Minute // whatever a server asks for
	mostAnswer = 1 << 20     // bytes of an answer that are read: 500 problems fit
	mostShown  = 300         // bytes of a server's message that are told
)

// An answer is what came of a request.
type answer struct {
	status int
	header http.Header
	body   []byte // at most mostAnswer of it
}

// documents is the path of what is pushed, below /v1/wp.
const documents = "documents"

// ask sends a batch. The error is that of tries.
func (s *Sync) ask(ctx context.Context, method string, b *batch) (answer, error) {
	return s.tries(ctx, method, documents, b.json(), len(b.ids) > 1)
}

// tries sends one request, and sends it again while it fails as it may not fail the next time: a
// sync is idempotent. The error is ErrInterrupted, a *Failure, or a *slowError for a body that can
// be halved.
func (s *Sync) tries(ctx context.Context, method, path string, body []byte, halved bool) (answer, error) {
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
		case errors.As(err, &slow) && halved:
			s.mu.Lock()
			s.tell(Trouble{slow.Error() + ", now in halves", 0})
			s.mu.Unlock()
			return a, slow
		case err != nil:
			reason = s.shown(unwrap(err).Error())
		case a.status >= 500 && a.status != http.StatusInsufficientStorage:
			reason = s.refusal(a)
		default:
			return a, nil
		}
		if try == mostTries {
			return a, &Failure{fmt.Errorf("%s %s: %s, %d times", method, s.endpoint(path), reason, try), "run the same command again to go on"}
		}
		pause := max(firstPause<<(try-1), min(retryAfter(a.header), mostPause))
		s.mu.Lock()
		s.tell(Trouble{reason, pause})
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
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the token is for this host
	response, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	a := answer{status: response.StatusCode, header: response.Header}
	a.body, err = io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	if a.status >= 300 {
		err = nil // the status says enough
	}
	return a, err
}

func (s *Sync) endpoint(path string) string { return s.o.To.JoinPath("v1/wp", path).String() }

// refusal is what an answer says, for people.
func (s *Sync) refusal(a answer) string {
	text := fmt.Sprintf("the server answered %d %s", a.status, http.StatusText(a.status))
	var told struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(a.body, &told) == nil && told.Error.Message != "" {
		return text + ": " + s.shown(told.Error.Message)
	}
	if plain := strings.TrimSpace(string(a.body)); plain != "" && !strings.HasPrefix(plain, "<") && !strings.HasPrefix(plain, "{") {
		return text + ": " + s.shown(plain)
	}
	return text
}

// acknowledges says whether a 200 accounts for a batch of n documents as the bulk-sync surface does. What answers for a server
// that is not there must not pass for it: the state would hold what nobody has.
func acknowledges(method string, a answer, n int) bool {
	var told struct {
		Created   *int `json:"created"`
		Updated   *int `json:"updated"`
		Unchanged *int `json:"unchanged"`
		Deleted   *int `json:"deleted"`
	}
	media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	if media != "application/json" || len(a.body) == mostAnswer || json.Unmarshal(a.body, &told) != nil {
		return false
	}
	within := func(count *int) bool { return count != nil && 0 <= *count && *count <= n }
	if method == http.MethodDelete {
		return within(told.Deleted) // one that was not there does not count
	}
	return within(told.Created) && within(told.Updated) && within(told.Unchanged) && *told.Created+*told.Updated+*told.Unchanged == n
}

// shown is what a server or the network says, harmless and without the token.
func (s *Sync) shown(text string) string {
	return plaintext.Line(strings.ReplaceAll(text, s.o.Token, "…"), mostShown)
}

// An itemProblem is what a 422 says of one item.
type itemProblem struct {
	Index  int    `json:"index"`
	Reason string `json:"reason"`
}

// itemProblems returns what a 422 says of each item that it names, of n.
func itemProblems(a answer, n int) map[int]string {
	var told struct {
		Error struct {
			Items []itemProblem `json:"items"`
		} `json:"error"`
	}
	if json.Unmarshal(a.body, &told) != nil {
		return nil
	}
	reasons := map[int]string{}
	for _, p := range told.Error.Items {
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

// retryAfter is how long an answer asks to wait; 0 where it does not say.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// unwrap is a client's error without method and address, which are told beside it.
func unwrap(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
