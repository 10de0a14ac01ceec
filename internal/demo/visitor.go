package demo

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/wait"
)

// A visitor sends one request at a time.
type visitor struct {
	role   *role
	server *url.URL
	client *http.Client
	random *rand.Rand
	token  string // the session's or the API token; empty if it has none
}

// visit sends requests until ctx ends. It does not retry a failed request, but waits before the
// next.
func (v *visitor) visit(ctx context.Context) {
	// The first pauses differ, so that the visitors do not start all at once.
	pause := time.Duration(v.random.Int64N(int64(v.role.every) + int64(5*time.Second)))
	for wait.For(ctx, pause) == nil {
		if v.role.session && v.token == "" {
			pause = max(v.next(), v.begin(ctx))
			continue
		}
		a := v.choose()
		status, retry := v.send(ctx, a.method, a.path, a.body, nil)
		pause = v.next()
		switch {
		case status == http.StatusTooManyRequests && v.role.polite:
			pause = max(pause, retry)
		case status == http.StatusUnauthorized && v.role.session:
			v.token = "" // the session has expired
		case status == http.StatusInsufficientStorage && v.role.session:
			// The session's share of the storage is used up.
			v.token, pause = "", max(pause, minRestart)
		case status == 0:
			pause = max(pause, time.Second)
		}
	}
}

// minRestart is the min wait before a visitor starts another session because the old one has used
// up its share of the storage. The share of its address may be used up too.
const minRestart = 2 * time.Second

// next returns the pause before the next request: half to one and a half times the average.
func (v *visitor) next() time.Duration {
	return v.role.every/2 + time.Duration(v.random.Int64N(int64(v.role.every)))
}

func (v *visitor) choose() *act {
	all := 0
	for i := range v.role.acts {
		all += v.role.acts[i].often
	}
	n := v.random.IntN(all)
	for i := range v.role.acts {
		if n -= v.role.acts[i].often; n < 0 {
			return &v.role.acts[i]
		}
	}
	return &v.role.acts[0]
}

// begin starts a session and returns the min wait before the next request. If the start is refused,
// that is at least the Retry-After of the answer.
func (v *visitor) begin(ctx context.Context) time.Duration {
	var made struct{ Token string }
	status, retry := v.send(ctx, http.MethodPost, widget+"init", `{"agent_id":"`+Workspace+`"}`, &made)
	if status == http.StatusCreated {
		v.token = made.Token
		return 0
	}
	return max(retry, 2*time.Second)
}

// maxRead bounds the bytes that are read of an answer.
const maxRead = 64 << 10

// send sends one request and decodes the answer into out, unless out is nil. status is 0 if there
// was no readable answer. retry is the Retry-After of the answer, or 0.
func (v *visitor) send(ctx context.Context, method, path, body string, out any) (status int, retry time.Duration) {
	r, err := http.NewRequestWithContext(ctx, method, v.server.JoinPath(path).String(), strings.NewReader(body))
	if err != nil {
		return 0, 0
	}
	if body == "" {
		r.Body, r.ContentLength = http.NoBody, 0
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	if v.token != "" {
		r.Header.Set("Authorization", "Bearer "+v.token)
	}
	r.Header.Set("User-Agent", "weir-demo")
	answer, err := v.client.Do(r)
	if err != nil {
		return 0, 0
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxRead))
	if err != nil {
		return 0, 0
	}
	if out != nil && json.Unmarshal(text, out) != nil {
		return 0, 0
	}
	if seconds, err := strconv.ParseInt(answer.Header.Get("Retry-After"), 10, 32); err == nil && seconds > 0 {
		retry = time.Duration(seconds) * time.Second
	}
	return answer.StatusCode, retry
}
