package wordpress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/e2e/child"
)

// A service is the real weir serve with its sample backend.
type service struct {
	*testing.T
	url   string
	token string // for the site

	own     string // a token for this test, with a budget of its own
	direct  string // the server's own address; url is that of a proxy before it
	data    string
	process *child.Process

	mu       sync.Mutex
	requests []exchange
	// answers in the server's place if it returns true
	answer func(w http.ResponseWriter, r *http.Request) bool
}

// An exchange is a request of the site and the status of its answer.
type exchange struct {
	method, path, agent, token string
	body                       string
	status                     int
}

// serve starts a service whose limiter wp-plugin allows so much, such as "60 per minute".
func serve(t *testing.T, window string) *service {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{T: t, data: t.TempDir()}
	policy := filepath.Join(s.data, "policy.yaml")
	text := fmt.Sprintf("limiters:\n  - name: wp-plugin\n    routes: [/v1/wp/*]\n    windows: [%s by token or ip]\n", window)
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "serve", "--listen", "127.0.0.1:0", "--data", s.data, "--policy", policy)
	cmd.Env = environment()
	if s.process, err = child.Start(cmd, filepath.Join(s.data, "output"), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.process.Stop(child.Patience) })
	ready := regexp.MustCompile(`(?m)^ready$`)
	if err := s.process.Await("weir serve is ready", func() bool { return ready.MatchString(s.process.Output()) }); err != nil {
		t.Fatal(err)
	}
	s.direct = regexp.MustCompile(`(?m)^listening +(http://\S+)`).FindStringSubmatch(s.process.Output())[1]
	target, err := url.Parse(s.direct)
	if err != nil {
		t.Fatal(err)
	}
	onward := httputil.NewSingleHostReverseProxy(target)
	onward.ErrorHandler = func(w http.ResponseWriter, r *http.Request, _ error) {
		w.WriteHeader(http.StatusBadGateway) // the site's process was killed
	}
	proxy := httptest.NewServer(s.record(onward))
	t.Cleanup(proxy.Close)
	s.url = proxy.URL
	s.token, s.own = s.mint("site"), s.mint("site")
	return s
}

// record returns a handler that records what the site sends.
func (s *service) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the site's process was killed
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		x := exchange{method: r.Method, path: r.URL.Path, agent: r.UserAgent(), token: r.Header.Get("Authorization"), body: string(body)}
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		s.mu.Lock()
		answer := s.answer
		s.mu.Unlock()
		if answer == nil || !answer(seen, r) {
			next.ServeHTTP(seen, r)
		}
		x.status = seen.status
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests = append(s.requests, x)
	})
}

// A statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// replaceAnswers sets what answers in the server's place; nil: nothing does.
func (s *service) replaceAnswers(answer func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// received returns what the site has sent so far.
func (s *service) received() []exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// refused returns how many requests of the site were refused for their rate.
func (s *service) refused() (n int) {
	for _, x := range s.received() {
		if x.status == http.StatusTooManyRequests {
			n++
		}
	}
	return n
}

// environment is this process's without variables that Weir reads.
func environment() []string {
	env := []string{"WEIR_ADMIN=127.0.0.1:0"}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WEIR_") && !strings.HasPrefix(v, "OTEL_") && !strings.HasPrefix(v, "XDG_") {
			env = append(env, v)
		}
	}
	return env
}

// mint creates a token of a workspace.
func (s *service) mint(workspace string) string {
	s.Helper()
	path, err := program()
	if err != nil {
		s.Fatal(err)
	}
	cmd := exec.Command(path, "token", "create", "--workspace", workspace, "--data", s.data)
	cmd.Env = environment()
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		s.Fatalf("token create: %v\n%s", err, &problem)
	}
	return strings.TrimSpace(string(out))
}

// A document is what the service has of a post.
type document struct{ ID, Title, URL, Text string }

// documents returns everything that the workspace of a token has, by id.
func (s *service) documents(token string) map[string]document {
	s.Helper()
	all := map[string]document{}
	for after := ""; ; {
		var page struct {
			Items []document
			Next  string
		}
		s.ask("GET", "/v1/wp/documents?limit=500&after="+url.QueryEscape(after), token, nil, &page)
		for _, d := range page.Items {
			if _, twice := all[d.ID]; twice {
				s.Errorf("the service has %s twice", d.ID)
			}
			all[d.ID] = d
		}
		if after = page.Next; after == "" {
			return all
		}
	}
}

// answers returns the titles of the documents from which a visitor's question is answered.
func (s *service) answers(question string) []string {
	s.Helper()
	var session struct {
		Token          string
		ConversationID string `json:"conversation_id"`
	}
	s.ask("POST", "/api/v1/widget/init", "", map[string]string{"agent_id": "site"}, &session)
	var answer struct {
		Reply struct {
			Sources []struct{ Title string }
		}
	}
	s.ask("POST", "/api/v1/widget/messages", session.Token, map[string]string{"conversation_id": session.ConversationID, "text": question}, &answer)
	var titles []string
	for _, source := range answer.Reply.Sources {
		titles = append(titles, source.Title)
	}
	return titles
}

// ask sends a request, and again when it is refused for its rate, and reads its JSON answer.
func (s *service) ask(method, path, token string, body, answer any) {
	s.Helper()
	for {
		status, text := s.request(method, path, token, body)
		if status == http.StatusTooManyRequests {
			continue // a window of the tests is a few seconds long
		}
		if status/100 != 2 {
			s.Fatalf("%s %s: %d: %s", method, path, status, text)
		}
		if err := json.Unmarshal(text, answer); err != nil {
			s.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
		return
	}
}

func (s *service) request(method, path, token string, body any) (status int, text []byte) {
	s.Helper()
	var sent io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			s.Fatal(err)
		}
		sent = bytes.NewReader(encoded)
	}
	r, err := http.NewRequestWithContext(s.Context(), method, s.direct+path, sent)
	if err != nil {
		s.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	if text, err = io.ReadAll(response.Body); err != nil {
		s.Fatal(err)
	}
	return response.StatusCode, text
}
