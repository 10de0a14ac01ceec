package weir

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/internal/openapitest"
)

// A call is a request to send many times.
type call struct {
	method, path, body string
	header             map[string]string
	// True if the backend is not the sample backend, so its document does not
	// apply.
	foreign bool
}

// A standing is an answer's report on its window.
type standing struct {
	status                  int
	limit, remaining, reset int64
}

// send sends a call over a client's connection.
func (c call) send(ctx context.Context, client *http.Client, url string) (standing, error) {
	r, err := http.NewRequestWithContext(ctx, c.method, url+c.path, strings.NewReader(c.body))
	if err != nil {
		return standing{}, err
	}
	if c.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range c.header {
		r.Header.Set(name, value)
	}
	response, err := client.Do(r)
	if err != nil {
		return standing{}, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return standing{}, err
	}
	if !c.foreign {
		if err := asDescribed(r, c.body, response, answer); err != nil {
			return standing{}, err
		}
	}
	s := standing{status: response.StatusCode}
	for name, to := range map[string]*int64{"X-Ratelimit-Limit": &s.limit, "X-Ratelimit-Remaining": &s.remaining, "X-Ratelimit-Reset": &s.reset} {
		if *to, err = strconv.ParseInt(response.Header.Get(name), 10, 64); err != nil {
			return s, fmt.Errorf("%s %s: status %d, %s: %w", c.method, c.path, s.status, name, err)
		}
	}
	return s, nil
}

// asDescribed checks the sample backend's answer against its document, including
// the headers of its surface.
func asDescribed(r *http.Request, sent string, response *http.Response, answer []byte) error {
	d, err := described()
	if err != nil {
		return err
	}
	return d.Check(openapitest.Exchange{Request: r, Sent: []byte(sent), Status: response.StatusCode, Header: response.Header, Body: answer})
}

// connections is the number of connections for exact counts.
const connections = 32

// flood sends a call n times over 32 connections, and returns the standings of all
// answers.
func flood(t *testing.T, url string, n int, c call) []standing {
	t.Helper()
	answers := make([]standing, n)
	var next atomic.Int64
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			transport := &http.Transport{MaxConnsPerHost: 1}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				var err error
				if answers[i], err = c.send(t.Context(), client, url); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return answers
}

// session starts a visitor's session and returns its token.
func session(t *testing.T, url string) string {
	t.Helper()
	body := post(t, url+"/api/v1/widget/init", "", `{"agent_id":"demo"}`, http.StatusCreated)
	var made struct{ Token string }
	if err := json.Unmarshal(body, &made); err != nil || made.Token == "" {
		t.Fatalf("init answered %q: %v", body, err)
	}
	return made.Token
}

// post sends JSON, checks the status, and returns the body.
func post(t *testing.T, url, credential, body string, status int) []byte {
	t.Helper()
	got, answer := sent(t, http.MethodPost, url, credential, body)
	if got != status {
		t.Fatalf("POST %s: status %d, want %d: %s", url, got, status, answer)
	}
	return answer
}

// sent sends JSON to the sample backend, checks the answer against the document,
// and returns its status and body.
func sent(t *testing.T, method, url, credential, body string) (status int, answer []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if credential != "" {
		r.Header.Set("Authorization", "Bearer "+credential)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	if err := asDescribed(r, body, response, answer); err != nil {
		t.Error(err)
	}
	return response.StatusCode, answer
}

// apiToken mints an API token for a workspace in a data directory.
func apiToken(t *testing.T, data, workspace string) string {
	t.Helper()
	stdout, stderr, code := weirCommand(t.Context(), t, "token", "create", "--workspace", workspace, "--data", data)
	if code != 0 {
		t.Fatalf("weir token create: status %d: %s", code, stderr)
	}
	return strings.TrimSuffix(stdout, "\n")
}
