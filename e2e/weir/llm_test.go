package weir

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/gateway"
)

// The tests of this file go through the comment of examples/policies/llm-api.yaml, sentence by
// sentence, on both engines, before a server that answers like a language model.

// A language API is the edge under the example before a model, with two tokens, the second one of
// plan pro, and a clock that the test sets.
type languageAPI struct {
	*testing.T
	model  *model
	server *edge.Server
	url    string
	now    atomic.Int64
	tokens [2]string
	ids    [2]string
}

// onEngines runs a test for each engine.
func onEngines(t *testing.T, test func(*testing.T, *languageAPI)) {
	for name, engine := range map[string]gateway.Engine{"fast": gateway.EngineAuto, "std": gateway.EngineStd} {
		t.Run(name, func(t *testing.T) { test(t, newLanguageAPI(t, engine)) })
	}
}

func newLanguageAPI(t *testing.T, engine gateway.Engine) *languageAPI {
	t.Helper()
	a := &languageAPI{T: t, model: &model{release: make(chan struct{}), ended: make(chan struct{})}}
	a.now.Store(1_800_000_000)
	backend := httptest.NewServer(a.model)
	t.Cleanup(func() { close(a.model.ended); backend.Close() })
	at, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := inProcess(t, parsed(t, readText(t, examples+"policies/llm-api.yaml")), func() time.Time { return time.Unix(a.now.Load(), 0) })
	c.Sites, c.TokenFile, c.Engine = gateway.To(at), filepath.Join(t.TempDir(), "tokens"), engine
	var lines string
	for i, plan := range []string{"", " plan=pro"} {
		token, id, hash, err := identity.NewToken(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		a.tokens[i], a.ids[i] = token, id
		lines += fmt.Sprintf("%s %x%s\n", id, hash, plan)
	}
	if err := os.WriteFile(c.TokenFile, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	a.server = openEdge(t, c)
	a.url = runEdge(t, a.server)
	return a
}

func (a *languageAPI) after(d time.Duration) { a.now.Add(int64(d / time.Second)) }

// begin sends a prompt with a token. The caller closes the body of the response.
func (a *languageAPI) begin(ctx context.Context, token string, p prompt, fields ...string) *http.Response {
	a.Helper()
	body, err := json.Marshal(p)
	if err != nil {
		a.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, "POST", a.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		a.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		a.Fatal(err)
	}
	return response
}

// A completion is an answer that was read.
type completion struct {
	status int
	header http.Header
	body   []byte
}

// number returns the value of a field that has a whole number, -1 if it has none.
func (c completion) number(field string) int64 {
	n, err := strconv.ParseInt(c.header.Get(field), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// complete sends a prompt and reads the whole answer.
func (a *languageAPI) complete(token string, p prompt, fields ...string) completion {
	a.Helper()
	response := a.begin(a.Context(), token, p, fields...)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if breaks := strings.HasPrefix(p.Prompt, abort); breaks != (err != nil) {
		a.Errorf("%s: %v", p.Prompt, err)
	}
	return completion{response.StatusCode, response.Header, body}
}

// status completes a prompt and checks the status.
func (a *languageAPI) status(want int, token string, p prompt, fields ...string) completion {
	a.Helper()
	c := a.complete(token, p, fields...)
	if c.status != want {
		a.Errorf("%s is answered %d %v %s, want %d", p.Prompt, c.status, c.header, c.body, want)
	}
	return c
}

// heldBy is a caller by its token.
type heldBy string

func (h heldBy) AppendKey(dst []byte, source string) ([]byte, bool) {
	return append(dst, h...), source == identity.Token
}

// standing returns the limit and the count of each row of a token.
func (a *languageAPI) standing(token int) (units, requests, slots weir.Standing) {
	a.Helper()
	d, err := a.server.Decider().Decide(a.Context(), weir.Request{Method: "POST", Path: "/v1/chat/completions", Keys: heldBy(a.ids[token]), Cost: weir.Peek})
	if err != nil {
		a.Fatal(err)
	}
	for _, s := range d.Standings() {
		switch {
		case s.InFlight:
			slots = s
		case s.Window.Requests:
			requests = s
		default:
			units = s
		}
	}
	return units, requests, slots
}

// spent waits until the token has spent so many units and no request of it is under way: an answer
// can arrive before it is settled.
func (a *languageAPI) spent(token int, want int64) {
	a.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	ctx, stop := context.WithTimeout(a.Context(), 10*time.Second)
	defer stop()
	for {
		units, _, slots := a.standing(token)
		if units.Count == want && slots.Count == 0 {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			a.Fatalf("%d units are spent and %d requests are under way, want %d and none", units.Count, slots.Count, want)
		}
	}
}

func TestTheLLMExampleNeedsAToken(t *testing.T) {
	onEngines(t, func(t *testing.T, a *languageAPI) {
		// More than 4 of them: none keeps a slot.
		for range 6 {
			a.status(401, "", prompt{Prompt: use + "1", MaxTokens: 1})
		}
		a.status(401, "nonsense", prompt{Prompt: use + "1", MaxTokens: 1})
		if n := a.model.asked.Load(); n != 0 {
			t.Errorf("the model was asked %d times without a token", n)
		}
		// Embeddings are for everybody.
		response, err := http.Post(a.url+"/v1/embeddings", "application/json", strings.NewReader(`{"prompt":"use 1"}`))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 200 || response.Header.Get("X-RateLimit-Limit") != "600" {
			t.Errorf("an embedding is answered %d %v", response.StatusCode, response.Header)
		}
	})
}

func TestTheLLMExampleChargesWhatTheModelTells(t *testing.T) {
	onEngines(t, func(t *testing.T, a *languageAPI) {
		one := a.tokens[0]
		told := &streamOptions{IncludeUsage: true}
		total := int64(0)
		for _, step := range []struct {
			prompt
			fields []string
			cost   int64
		}{
			{prompt{Prompt: use + "30", MaxTokens: 100}, nil, 30},
			{prompt{Prompt: use + "0"}, nil, 0},
			{prompt{Prompt: use + "30", MaxTokens: 100}, []string{"Accept-Encoding", "gzip, br"}, 30},
			{prompt{Prompt: use + "40", MaxTokens: 100, Stream: true, StreamOptions: told}, nil, 40},
			{prompt{Prompt: use + "41", Stream: true, StreamOptions: told}, []string{"Accept-Encoding", "gzip"}, 41},
			{prompt{Prompt: use + "2200", MaxTokens: 100}, nil, 2200}, // more than was reserved
			{prompt{Prompt: use + "40", MaxTokens: 100, Stream: true}, nil, 2100},
			{prompt{Prompt: mute + "40", MaxTokens: 7}, nil, 2007},
			{prompt{Prompt: abort + "40", MaxTokens: 8, Stream: true, StreamOptions: told}, nil, 2008},
			{prompt{Prompt: mute + "40"}, nil, 10000},
			{prompt{Prompt: mute + "40", MaxTokens: math.MaxInt32}, nil, 10000},
			{prompt{Prompt: fail + "400"}, nil, 0},
			{prompt{Prompt: fail + "503", MaxTokens: 100}, nil, 0},
		} {
			r := a.complete(one, step.prompt, step.fields...)
			if r.status == 429 {
				t.Fatalf("%+v is refused: %v", step.prompt, r.header)
			}
			total += step.cost
			a.spent(0, total)
		}
		if n := a.model.encoded.Load(); n != 0 {
			t.Errorf("the model was told %d times that it may compress", n)
		}
	})
}

func TestTheLLMExampleHasADayOfUnitsByPlan(t *testing.T) {
	onEngines(t, func(t *testing.T, a *languageAPI) {
		one, pro := a.tokens[0], a.tokens[1]
		for range 9 {
			a.status(200, one, prompt{Prompt: mute + "1"}) // reserves 10000
		}
		a.status(200, one, prompt{Prompt: use + "7000", MaxTokens: 7000})
		a.spent(0, 97000)
		// 3000 are left: a request that asks for less is served, and spends nothing if refused.
		a.status(429, one, prompt{Prompt: use + "1", MaxTokens: 1001})
		a.status(200, one, prompt{Prompt: use + "1000", MaxTokens: 1000})
		a.spent(0, 98000)
		r := a.status(429, one, prompt{Prompt: use + "1", MaxTokens: 1})
		if limit, left := r.number("X-RateLimit-Limit"), r.number("X-RateLimit-Remaining"); limit != 100000 || left != 0 {
			t.Errorf("a refusal says %d of %d are left", left, limit)
		}
		units, _, _ := a.standing(0)
		if reset := r.number("X-RateLimit-Reset"); reset != units.Reset || units.Count != 98000 {
			t.Errorf("reset at %d, want %d; %d spent", reset, units.Reset, units.Count)
		}
		for range 11 {
			a.status(200, pro, prompt{Prompt: mute + "1"})
		}
		a.spent(1, 110000)
		a.after(24 * time.Hour)
		a.status(200, one, prompt{Prompt: use + "5"})
		a.spent(0, 5)
	})
}

// A hundred requests at once on a budget for ten: the eleventh is refused while ten are reserved.
func TestTheLLMExampleIsNeverOverItsLimit(t *testing.T) {
	onEngines(t, func(t *testing.T, a *languageAPI) {
		var served, refused atomic.Int64
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				switch r := a.complete(a.tokens[0], prompt{Prompt: mute + "1"}); r.status {
				case 200:
					served.Add(1)
				case 429:
					refused.Add(1)
				default:
					a.Errorf("status %d", r.status)
				}
			})
		}
		all.Wait()
		a.spent(0, 10000*served.Load())
		if n := served.Load(); n > 10 || a.model.asked.Load() != n || n+refused.Load() != 100 {
			t.Errorf("%d were served and %d refused, and the model was asked %d times", n, refused.Load(), a.model.asked.Load())
		}
	})
}

func TestTheLLMExampleHasSixtyRequestsAMinute(t *testing.T) {
	onEngines(t, func(t *testing.T, a *languageAPI) {
		for i := range 60 {
			a.status(200, a.tokens[0], prompt{Prompt: use + "1", MaxTokens: 1})
			a.spent(0, int64(i+1))
		}
		r := a.status(429, a.tokens[0], prompt{Prompt: use + "1", MaxTokens: 1})
		if limit := r.number("X-RateLimit-Limit"); limit != 60 {
			t.Errorf("a refusal describes a limit of %d", limit)
		}
		a.after(time.Minute)
		a.status(200, a.tokens[0], prompt{Prompt: use + "1", MaxTokens: 1})
	})
}

func TestTheLLMExampleHasFourAtATime(t *testing.T) {
	onEngines(t, func(t *testing.T, a *languageAPI) {
		held := prompt{Prompt: hold + "9", MaxTokens: 9, Stream: true, StreamOptions: &streamOptions{IncludeUsage: true}}
		leaving, leave := context.WithCancel(a.Context())
		defer leave()
		for i := range 4 {
			ctx := a.Context()
			if i == 3 {
				ctx = leaving
			}
			response := a.begin(ctx, a.tokens[0], held)
			defer response.Body.Close()
			if line, err := bufio.NewReader(response.Body).ReadString('\n'); response.StatusCode != 200 || !strings.Contains(line, "Water") || err != nil {
				t.Fatalf("stream %d: %d %q %v", i, response.StatusCode, line, err)
			}
		}
		r := a.status(429, a.tokens[0], prompt{Prompt: use + "1", MaxTokens: 1})
		if again, limit, left := r.number("Retry-After"), r.number("X-RateLimit-Limit"), r.number("X-RateLimit-Remaining"); again != 1 || limit != 4 || left != 0 {
			t.Errorf("the fifth is told to retry after %d s, with %d of %d", again, left, limit)
		}
		a.status(200, a.tokens[1], prompt{Prompt: use + "1", MaxTokens: 1})
		units, requests, slots := a.standing(0)
		if units.Count != 4*2009 || requests.Count != 4 || slots.Count != 4 {
			t.Errorf("%d units, %d requests and %d slots are spent by four", units.Count, requests.Count, slots.Count)
		}
		// One leaves, three end: their slots are free.
		leave()
		a.slots(3)
		close(a.model.release)
		a.slots(0)
		a.status(200, a.tokens[0], prompt{Prompt: use + "1", MaxTokens: 1})
	})
}

// slots waits until so many requests of the first token are under way.
func (a *languageAPI) slots(want int64) {
	a.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	ctx, stop := context.WithTimeout(a.Context(), 10*time.Second)
	defer stop()
	for {
		_, _, slots := a.standing(0)
		if slots.Count == want {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			a.Fatalf("%d requests are under way, want %d", slots.Count, want)
		}
	}
}

func TestTheLLMExampleCountsFailedLogins(t *testing.T) {
	onEngines(t, func(t *testing.T, a *languageAPI) {
		try := func(password string, want int) {
			t.Helper()
			response, err := http.PostForm(a.url+"/account/login", url.Values{"password": {password}})
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("password %s is answered %d %v, want %d", password, response.StatusCode, response.Header, want)
			}
		}
		for range 20 {
			try("right", 200)
		}
		for range 4 {
			try("wrong", 401)
			try("right", 200)
		}
		try("locked", 403)
		try("right", 429)
		a.after(15*time.Minute - time.Second)
		try("right", 429)
		a.after(time.Second)
		try("right", 200)
	})
}

// A reservation above a limit is rejected.
func TestTheLLMExampleCannotReserveMoreThanItsLimit(t *testing.T) {
	text := strings.Replace(readText(t, examples+"policies/llm-api.yaml"), "at_most: 10000", "at_most: 100001", 1)
	_, stderr, code := weirCommand(t.Context(), t, "policy", "check", policyFile(t, text))
	if code != 1 || !strings.Contains(stderr, "a request reserves at most its caller's limit") {
		t.Errorf("status %d: %s", code, stderr)
	}
}
