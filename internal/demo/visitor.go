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
)

// A visitor sends one request after another.
type visitor struct {
	role   *role
	server *url.URL
	client *http.Client
	random *rand.Rand
	token  string // of a session, or of an API; empty: none
}

// visit goes on until ctx ends. What fails is tried again later, as people do.
func (v *visitor) visit(ctx context.Context) {
	pause := time.Duration(v.random.Int64N(int64(v.role.every) + int64(5*time.Second))) // they do not all come at once
	for wait(ctx, pause) {
		if v.role.session && v.token == "" {
			pause = max(v.next(), v.begin(ctx))
			continue
		}
		a := v.choose()
		status, retry := v.send(ctx, a.method, a.path, a.body, nil)
		pause = v.next()
		switch {
		case status == http.StatusTooManyRequests && v.role.heeds:
			pause = max(pause, retry)
		case status == http.StatusUnauthorized && v.role.session:
			v.token = "" // it has expired
		case status == http.StatusInsufficientStorage && v.role.session:
			v.token, pause = "", max(pause, refill) // the session's share of the storage is used up
		case status == 0:
			pause = max(pause, time.Second)
		}
	}
}

// refill is how long a visitor waits at least before it starts another session because the old one
// may store no more. The address's share may be used up too.
const refill = 2 * time.Second

// wait waits, and reports whether ctx goes on.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// next is how long until the next request: half as long as usual to half as long again.
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

// begin begins a session, and returns how long to wait at least: where there is none, as long as the answer says.
func (v *visitor) begin(ctx context.Context) time.Duration {
	var made struct{ Token string }
	status, retry := v.send(ctx, http.MethodPost, widget+"init", `{"agent_id":"`+Workspace+`"}`, &made)
	if status == http.StatusCreated {
		v.token = made.Token
		return 0
	}
	return max(retry, 2*time.Second)
}

// mostRead is how much of an answer is read.
const mostRead = 64 << 10

// send sends one request and reads its answer, into out where that is not nil. status is 0 where there was none; retry is what the
// answer says in Retry-After.
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
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostRead))
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
