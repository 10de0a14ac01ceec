package weir

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/openapitest"
	"github.com/weirlimit/weir/policyfile"
)

// described is the OpenAPI document of the sample backend.
var described = sync.OnceValues(func() (*openapitest.Document, error) {
	yaml, err := os.ReadFile("../../internal/sample/openapi.yaml")
	if err != nil {
		return nil, err
	}
	return openapitest.Read(yaml)
})

// setting is a test's setting from the environment, or its default.
func setting(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	given := os.Getenv(name)
	if given == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		t.Fatalf("%s is %q: expected a whole number", name, given)
	}
	return n
}

// Good and bad requests made from the document, behind the real edge. None is
// answered with 5xx, an undocumented status, content type or body, or without the
// headers of its surface. If an answer is 2xx, its request was valid by the
// document. The requests reach every documented success. GENERATED_SEED and
// GENERATED_REQUESTS change the run, or make it longer.
func TestGeneratedRequestsAreAnsweredAsDocumented(t *testing.T) {
	t.Parallel() // it has a handler of its own
	seed, requests := setting(t, "GENERATED_SEED", 1), setting(t, "GENERATED_REQUESTS", 3000)
	k := newHarness(t, seed)
	for range requests {
		v, d := k.next()
		if k.send(v, d); t.Failed() {
			t.Fatalf("it was the run of GENERATED_SEED=%d", seed)
		}
	}
	k.exhaust()
	for _, o := range k.operations {
		for _, d := range []draft{k.good(o, k.callers[0]), k.good(o, k.callers[1])} {
			k.send(k.callers[0], d)
		}
	}
	k.report(t)
}

// A harness is an edge in this process with limits that are not reached. It records
// the answers.
type harness struct {
	*testing.T
	*generator
	document *openapitest.Document
	edge     *edge.Server
	policy   weir.Policy
	seen     map[string]map[int]int // by operation and status
	kinds    map[string]int         // by operation, status and content type
}

func newHarness(t *testing.T, seed uint64) *harness {
	t.Helper()
	document, err := described()
	if err != nil {
		t.Fatal(err)
	}
	k := &harness{T: t, document: document, policy: policyfile.Contract(), seen: map[string]map[int]int{}, kinds: map[string]int{}}
	k.limitEach(func(limit int64) int64 { return limit * 1000 })
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	start := &live.Document{Source: live.Contract, Path: "the contract", File: &policyfile.File{Policy: k.policy}}
	c := inProcess(t, start, func() time.Time { return now })
	k.edge = openEdge(t, c)
	k.generator = &generator{
		Rand: rand.New(rand.NewPCG(seed, 0)), operations: operationsOf(document), now: now, tags: map[string]string{},
		tokens: []string{apiToken(t, c.Data, "demo"), apiToken(t, c.Data, "acme")}, dead: []string{"x.y.z", apiToken(t, t.TempDir(), "demo")},
		codes: []string{"ALWAYS", "CASH", "OVER", "LATER", "ONCE", "BIG"}, rows: []string{"post-1"},
	}
	k.send(&visitor{}, draft{
		method: "PUT", path: "/v1/wp/coupons", body: []byte(seedCoupons),
		header: http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + k.tokens[0]}},
	})
	for range 4 {
		hello := draft{method: "POST", path: "/api/v1/widget/init", header: http.Header{"Content-Type": {"application/json"}}, body: []byte(`{"agent_id":"demo"}`)}
		k.send(&visitor{}, hello)
	}
	return k
}

// limitEach changes every window's limit.
func (k *harness) limitEach(change func(int64) int64) {
	for i := range k.policy.Limiters {
		windows := slices.Clone(k.policy.Limiters[i].Windows)
		for j := range windows {
			windows[j].Limit = change(windows[j].Limit)
		}
		k.policy.Limiters[i].Windows = windows
	}
}

// exhaust lowers every limit to the units already spent.
func (k *harness) exhaust() {
	k.limitEach(func(int64) int64 { return 1 })
	if err := k.edge.Decider().Swap(k.policy); err != nil {
		k.Fatal(err)
	}
}

// send sends a request, checks the answer, and returns its status; 0 if the request
// cannot be built.
func (k *harness) send(v *visitor, d draft) (status int) {
	r, err := d.request()
	if err != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(k.Context(), patience)
	defer cancel()
	w := &streaming{ResponseRecorder: httptest.NewRecorder(), enough: cancel}
	asked := r.Clone(ctx)
	asked.Body = io.NopCloser(bytes.NewReader(d.body))
	k.edge.Handler().ServeHTTP(w, asked)

	r.URL.Path, r.URL.RawPath = canonical(r.URL.Path), ""
	answer, body := w.Result(), w.Body.Bytes()
	if err := k.document.Check(openapitest.Exchange{Request: r, Sent: d.body, Status: w.Code, Header: answer.Header, Body: body}); err != nil {
		k.Errorf("%v\nthe request was %v", err, d)
	}
	if w.Code >= 500 {
		k.Errorf("%v is answered %d %s", d, w.Code, body)
	}
	if limited := strings.HasPrefix(r.URL.Path, "/api/v1/widget/") || strings.HasPrefix(r.URL.Path, "/v1/wp/"); limited {
		for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			if len(answer.Header[name]) != 1 {
				k.Errorf("%v is answered %d with %s %q", d, w.Code, name, answer.Header[name])
			}
		}
	}
	if route := k.document.Operation(r); route != nil && r.Method != http.MethodHead {
		name := route.Method + " " + route.Path
		if k.seen[name] == nil {
			k.seen[name] = map[int]int{}
		}
		k.seen[name][w.Code]++
		media, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
		k.kinds[fmt.Sprintf("%s %d %s", name, w.Code, media)]++
	}
	k.learn(v, r, w.Code, answer.Header, body)
	return w.Code
}

// canonical returns a path in the document's form.
func canonical(p string) string {
	clean := path.Clean(p)
	if last := p[strings.LastIndex(p, "/")+1:]; clean != "/" && (last == "" || last == "." || last == "..") {
		clean += "/"
	}
	return clean
}

// A streaming recorder stops a stream once it has begun, because only its head
// matters.
type streaming struct {
	*httptest.ResponseRecorder
	enough context.CancelFunc
}

func (s *streaming) Write(p []byte) (int, error) {
	if strings.HasPrefix(s.Header().Get("Content-Type"), "text/event-stream") {
		s.enough()
	}
	return s.ResponseRecorder.Write(p)
}

func (s *streaming) Flush() {
	if strings.HasPrefix(s.Header().Get("Content-Type"), "text/event-stream") {
		s.enough()
	}
	s.ResponseRecorder.Flush()
}

// report prints the coverage, and requires every documented success and most of the
// documented refusals.
func (k *harness) report(t *testing.T) {
	var documented, reached int
	for _, o := range k.operations {
		name := o.method + " " + o.path
		row := fmt.Sprintf("%-52s", name)
		for _, status := range sorted(o.Responses.Map()) {
			code, err := strconv.Atoi(status)
			if err != nil {
				t.Fatalf("%s: the status %q", name, status)
			}
			n := k.seen[name][code]
			row += fmt.Sprintf(" %d:%d", code, n)
			for media := range o.Responses.Value(status).Value.Content {
				if code < 400 && k.kinds[fmt.Sprintf("%s %d %s", name, code, media)] == 0 {
					t.Errorf("no generated request made %s answer %d as %s", name, code, media)
				}
			}
			switch {
			case code < 400 && n == 0:
				t.Errorf("no generated request made %s answer %d: the run hardly tests it", name, code)
			case code >= 400 && code < 500:
				documented++
				reached += min(n, 1)
			}
		}
		t.Log(row)
	}
	t.Logf("%d of %d documented refusals were reached", reached, documented)
	if reached < documented*9/10 {
		t.Errorf("%d of %d documented refusals were reached, want nine in ten", reached, documented)
	}
}
