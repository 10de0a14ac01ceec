package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/admin"
)

func TestOnlyThePageNeedsNoToken(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<!doctype html>")) })
	f := newFixture(t, func(o *admin.Options) {
		o.Page, o.Metrics = page, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("weir_build_info 1\n")) })
	})
	for _, path := range []string{"/policy", "/candidate", "/metrics", "/none", "/index.html", "//", "/./", "/pagex"} {
		for _, authorization := range []string{"", "Bearer", "Bearer ", "Basic " + f.token, f.token} {
			w := f.refused(call{method: "GET", path: path, header: map[string]string{"Authorization": authorization}}, 401, "unauthorized")
			if w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("%s: no challenge", path)
			}
		}
	}
	for _, path := range []string{"/", "/page/page.js"} {
		if w := f.ask(call{method: "GET", path: path, header: map[string]string{"Authorization": ""}}); w.Code != 200 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	f.refused(call{method: "POST", path: "/", header: map[string]string{"Authorization": ""}}, 405, "method_not_allowed")
	if w := f.ask(call{method: "GET", path: "/metrics"}); w.Body.String() != "weir_build_info 1\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.refused(call{method: "GET", path: "/none"}, 404, "not_found")
	if w := f.refused(call{method: "DELETE", path: "/policy"}, 405, "method_not_allowed"); w.Header().Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("Allow: %q", w.Header().Get("Allow"))
	}
	two := httptest.NewRequest("GET", "/policy", nil)
	two.Host = "localhost"
	two.Header["Authorization"] = []string{"Bearer " + f.token, "Bearer " + f.token}
	w := httptest.NewRecorder()
	if f.admin.Handler().ServeHTTP(w, two); w.Code != 401 {
		t.Errorf("two Authorization fields: %d", w.Code)
	}
}

func TestOnlyThisMachinesNamesAreValidHosts(t *testing.T) {
	f := newFixture(t, func(o *admin.Options) { o.Hosts = []string{"Weir.example.com"} })
	for host, want := range map[string]int{
		"127.0.0.1:8081": 200, "127.0.0.1": 200, "localhost:9999": 200, "LOCALHOST": 200, "[::1]:8081": 200, "[::1]": 200,
		"weir.example.com": 200, "WEIR.example.com:8081": 200,
		"evil.example.com": 421, "localhost.example.com": 421, "127.0.0.1.example.com": 421, "192.0.2.1:8081": 421, "0.0.0.0:8081": 421,
		"localhost:": 421, "localhost:x": 421, "localhost:99999": 421, "127.0.0.2": 421,
	} {
		t.Run(host, func(t *testing.T) {
			c := call{method: "GET", path: "/policy", host: host}
			if want == 200 {
				f.answered(c, nil)
			} else {
				f.refused(c, want, "misdirected")
				// the page, too
				f.refused(call{method: "GET", path: "/", host: host}, want, "misdirected")
			}
		})
	}
}

func TestAnotherOriginsPageCannotChangeAnything(t *testing.T) {
	f := newFixture(t, nil)
	post := func(header map[string]string) call {
		header["Content-Type"] = "application/yaml"
		return call{method: "POST", path: "/policy", body: policyText, header: header}
	}
	f.refused(post(map[string]string{"Sec-Fetch-Site": "cross-site"}), 403, "cross_origin")
	f.refused(post(map[string]string{"Sec-Fetch-Site": "same-site"}), 403, "cross_origin")
	f.refused(post(map[string]string{"Origin": "http://evil.example.com"}), 403, "cross_origin")
	f.refused(post(map[string]string{"Origin": "null"}), 403, "cross_origin")
	f.answered(post(map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:8081"}), nil)
}

func TestOnlyWrongTokensAreRateLimited(t *testing.T) {
	f := newFixture(t, nil)
	wrong := func(i int, from string) call {
		return call{method: "GET", path: "/policy", from: from, header: map[string]string{"Authorization": fmt.Sprintf("Bearer wadm_s3cret%d", i)}}
	}
	for i := range 20 {
		f.refused(wrong(i, "[2001:db8::1]:1000"), 401, "unauthorized")
	}
	w := f.refused(wrong(20, "[2001:db8::ffff]:1000"), 429, "rate_limited") // of the same /64
	for name, want := range map[string]string{"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": fmt.Sprint(start + 60), "Retry-After": "60"} {
		t.Run(name, func(t *testing.T) {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		})
	}
	f.answered(call{method: "GET", path: "/policy", from: "[2001:db8::1]:1000"}, nil)
	f.refused(wrong(0, "[2001:db8:0:1::1]:1000"), 401, "unauthorized") // of another
	f.after(time.Minute)
	f.refused(wrong(0, "[2001:db8::1]:1000"), 401, "unauthorized")
	if strings.Contains(f.log.String(), "s3cret") || !strings.Contains(f.log.String(), "2001:db8::1") {
		t.Errorf("the log:\n%s", f.log.String())
	}
}

func TestTokenChangesTakeEffectWithinASecond(t *testing.T) {
	f := newFixture(t, nil)
	other := admin.OpenTokens(f.dir, admin.TokensOptions{}) // another process
	f.answered(call{method: "GET", path: "/policy"}, nil)
	token, err := other.Create(t.Context(), "ada@example.com", admin.Admin, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Create(t.Context(), "ada@example.com", admin.Admin, ""); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("twice: %v", err)
	}
	ada := call{method: "GET", path: "/policy", header: map[string]string{"Authorization": "Bearer " + token}}
	f.after(time.Second)
	f.answered(ada, nil)
	if err := other.Revoke(t.Context(), "ada@example.com", ""); err != nil {
		t.Fatal(err)
	}
	f.after(time.Second)
	f.refused(ada, 401, "unauthorized")

	if err := os.WriteFile(f.path("admin-tokens"), []byte("half a li"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.after(time.Second)
	f.refused(call{method: "GET", path: "/policy"}, 503, "tokens_unavailable")
	if !strings.Contains(f.log.String(), "so every admin request is refused") {
		t.Errorf("the log has %s", f.log.String())
	}
	if _, err := other.Create(t.Context(), "bob", admin.Admin, ""); err == nil {
		t.Error("a damaged file was replaced")
	}
	if strings.Contains(f.log.String(), "half a li") {
		t.Error("the file's content is logged")
	}
}

func TestTheFilesHoldOnlyTheOperatorsToken(t *testing.T) {
	f := newFixture(t, nil)
	token, err := f.tokens.Create(t.Context(), "ada", admin.Admin, "")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := admin.ReadOperator(f.dir)
	if err != nil || kept != f.token || len(token) != len("wadm_")+43 || token == kept {
		t.Errorf("%q, %v; %q", kept, err, token)
	}
	for _, name := range []string{"admin-tokens", "admin.token"} {
		b, err := os.ReadFile(f.path(name))
		info, statErr := os.Stat(f.path(name))
		if err != nil || statErr != nil || info.Mode().Perm() != 0o600 || strings.Contains(string(b), token) {
			t.Errorf("%s: %v %v %v\n%s", name, err, statErr, info, b)
		}
		if name == "admin-tokens" && strings.Contains(string(b), f.token) {
			t.Errorf("%s holds a token", name)
		}
	}
	if again, err := f.tokens.Begin(t.Context()); again != "" || err != nil {
		t.Errorf("a second start: %q, %v", again, err)
	}
	if err := os.Chmod(f.path("admin.token"), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := f.tokens.Begin(t.Context()); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("others can read it: %v", err)
	}
	if _, err := admin.ReadOperator(f.dir); err == nil {
		t.Error("others can read it, and it was accepted")
	}
	if err := f.tokens.Revoke(t.Context(), admin.Operator, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.path("admin.token")); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
	f.refused(call{method: "GET", path: "/policy"}, 401, "unauthorized")
	if again, err := f.tokens.Begin(t.Context()); again == "" || again == f.token || err != nil {
		t.Errorf("a start after it was revoked: %q, %v", again, err)
	}
	for _, bad := range []string{"", "-a", "a b", "a\n", "ä", strings.Repeat("a", 65)} {
		if _, err := f.tokens.Create(t.Context(), bad, admin.Admin, ""); err == nil {
			t.Errorf("%q is a name", bad)
		}
	}
}

func TestManyProcessesCreateTokensAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	begun := make(chan string, 8)
	for i := range 8 {
		all.Go(func() {
			tokens := admin.OpenTokens(dir, admin.TokensOptions{})
			made, err := tokens.Begin(t.Context())
			if err != nil {
				t.Error(err)
			}
			if made != "" {
				begun <- made
			}
			if _, err := tokens.Create(t.Context(), fmt.Sprintf("n%d", i), admin.Admin, ""); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	list, err := admin.OpenTokens(dir, admin.TokensOptions{}).List()
	if err != nil || len(list) != 9 || len(begun) != 1 {
		t.Errorf("%v, %v, the operator's was made %d times", list, err, len(begun))
	}
}

func TestAPolicyIsShownAndPosted(t *testing.T) {
	f := newFixture(t, nil)
	var state struct {
		Version, Source, Path, By, Text string
		Since                           int64
		Limiters                        int
		Last                            struct {
			OK       bool
			Problems []struct {
				File, Message string
				Line, Column  int
			}
		}
	}
	f.answered(call{method: "GET", path: "/policy"}, &state)
	if state.Text != policyText || state.Version != f.policy.State().Version || state.Source != "stream" || state.Limiters != 2 || state.Since != start || !state.Last.OK {
		t.Errorf("%+v", state)
	}
	w := f.answered(call{method: "GET", path: "/policy", header: map[string]string{"Accept": "application/json;q=0.5, application/yaml"}}, nil)
	if w.Body.String() != policyText || w.Header().Get("Content-Type") != "application/yaml" {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
	f.refused(call{method: "GET", path: "/candidate"}, 404, "no_candidate")

	post := func(text, kind string) call {
		return call{method: "POST", path: "/policy", body: text, header: map[string]string{"Content-Type": kind}}
	}
	next := strings.ReplaceAll(policyText, "5 per minute", "7 per minute")
	for _, kind := range []string{"", "application/json", "text/yaml", "application/x-www-form-urlencoded", "application/yaml; charset=latin1"} {
		f.refused(post(next, kind), 415, "unsupported_media_type")
	}
	f.answered(post(next, "application/yaml; charset=UTF-8"), &state)
	if state.Text != next || state.Source != "posted" || state.By != "token operator" || f.decider.Policy().Limiters[0].Windows[0].Limit != 7 {
		t.Errorf("%+v", state)
	}
	w = f.refused(post("limiters:\n  - name: A\n    windows: [0 per minute by ip]\n", "application/yaml"), 422, "invalid_policy")
	var invalid struct {
		Problems []struct {
			File, Message string
			Line, Column  int
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &invalid); err != nil || len(invalid.Problems) != 2 || invalid.Problems[1].Line != 3 || invalid.Problems[1].Column == 0 {
		t.Errorf("%v: %s", err, w.Body)
	}
	f.answered(call{method: "GET", path: "/policy"}, &state)
	if state.Text != next || state.Last.OK || len(state.Last.Problems) != 2 {
		t.Errorf("%+v", state)
	}
}

func TestAHugeBodyIsRefusedBeforeItIsRead(t *testing.T) {
	f := newFixture(t, nil)
	for _, declared := range []int64{10 << 20, -1} {
		var body endless
		r := httptest.NewRequest("POST", "/policy", &body)
		r.Host, r.ContentLength = "localhost", declared
		r.Header.Set("Authorization", "Bearer "+f.token)
		r.Header.Set("Content-Type", "application/yaml")
		w := httptest.NewRecorder()
		f.admin.Handler().ServeHTTP(w, r)
		if w.Code != 413 || body.read > 3<<20 || declared > 0 && body.read > 0 || w.Header().Get("Connection") != "close" {
			t.Errorf("declared as %d: %d, %d bytes were read, %v", declared, w.Code, body.read, w.Header())
		}
	}
}

func TestTheListenerDrains(t *testing.T) {
	hold, entered := make(chan struct{}), make(chan struct{})
	f := newFixture(t, func(o *admin.Options) {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(entered)
			<-hold
			_, _ = w.Write([]byte("whole"))
		})
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- f.admin.Serve(ctx, l) }()
	answer := make(chan int, 1)
	go func() {
		r, _ := http.NewRequest("GET", "http://"+l.Addr().String()+"/metrics", nil)
		r.Header.Set("Authorization", "Bearer "+f.token)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			answer <- 0
			return
		}
		_ = response.Body.Close()
		answer <- response.StatusCode
	}()
	<-entered
	stop()
	close(hold)
	if code, err := <-answer, <-served; code != 200 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
}

// An acceptListener reports each connection that it has accepted.
type acceptListener struct {
	net.Listener
	accepted chan struct{}
	closed   func()
}

func (l acceptListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- struct{}{}
	}
	return c, err
}

func (l acceptListener) Close() error {
	defer l.closed()
	return l.Listener.Close()
}

// The first request of a connection that was accepted just before the end is answered.
func TestTheFirstRequestOfANewConnectionIsAnsweredInADrain(t *testing.T) {
	f := newFixture(t, nil)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	l := acceptListener{inner, make(chan struct{}, 1), sync.OnceFunc(func() { close(closed) })}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- f.admin.ServeMetrics(ctx, l) }()
	c, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-l.accepted
	stop()
	<-closed
	if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
		t.Errorf("the answer is %q, %v", answer, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// The look at the operator's token at the start keeps no tokens for requests: one that is created
// at once is known.
func TestATokenThatIsCreatedAfterTheStartIsKnown(t *testing.T) {
	f := newFixture(t, nil)
	if err := f.tokens.CheckOperator(); err != nil {
		t.Error(err)
	}
	token, err := admin.OpenTokens(f.dir, admin.TokensOptions{}).Create(t.Context(), "ada", admin.Admin, "")
	if err != nil {
		t.Fatal(err)
	}
	f.answered(call{method: "GET", path: "/policy", header: map[string]string{"Authorization": "Bearer " + token}}, nil)
}
