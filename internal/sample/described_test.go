package sample

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/openapitest"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/policyfile"
)

// described is the document that all exchanges of these tests are checked against.
var described = sync.OnceValues(func() (*openapitest.Document, error) { return openapitest.Read(description) })

// rateHeaders are added by the middleware; a bare backend does not have them.
var rateHeaders = []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}

// exchange lets a handler answer r, checks the exchange against the document, and returns the
// answer. Without a limiter the headers in unsaid may be missing.
func (k *bench) exchange(h http.Handler, r *http.Request, unsaid ...string) reply {
	sent := &recording{ReadCloser: r.Body}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = sent
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	a := reply{k, w.Code, w.Result().Header, w.Body.Bytes()}
	k.compare(openapitest.Exchange{Request: r, Sent: sent.read, Status: a.status, Header: a.header, Body: a.body}, unsaid...)
	return a
}

// compare checks an exchange against the document.
func (k *bench) compare(x openapitest.Exchange, unsaid ...string) {
	d, err := described()
	if err != nil {
		k.Error(err)
		return
	}
	if err := d.Without(unsaid...).Check(x); err != nil {
		k.Errorf("openapi.yaml and the server differ: %v", err)
	}
}

// A recording keeps what was read of a body.
type recording struct {
	io.ReadCloser
	read []byte
}

func (r *recording) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.read = append(r.read, p[:n]...)
	return n, err
}

// The document describes exactly what exists: every route and page, its query parameters and the
// maximum size of its body.
func TestEveryRouteIsDescribedAndNothingElse(t *testing.T) {
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	operations := map[string]*openapi3.Operation{}
	queries := map[string][]string{}
	for path, item := range d.Spec.Paths.Map() {
		for method, operation := range item.Operations() {
			operations[method+" "+path] = operation
			for _, p := range append(slices.Clone(item.Parameters), operation.Parameters...) {
				// allowed everywhere
				if p.Value.In == openapi3.ParameterInQuery && p.Value.Name != "agent_id" {
					queries[method+" "+path] = append(queries[method+" "+path], p.Value.Name)
				}
			}
		}
	}
	for _, r := range routes() {
		o := operations[r.String()]
		if o == nil {
			t.Errorf("%s is not described", &r)
			continue
		}
		delete(operations, r.String())
		known, described := slices.Sorted(slices.Values(r.query)), slices.Sorted(slices.Values(queries[r.String()]))
		if !slices.Equal(known, described) {
			t.Errorf("%s takes the query parameters %v, described are %v", &r, known, described)
		}
		var most float64
		if o.RequestBody != nil {
			most, _ = o.RequestBody.Value.Extensions[openapitest.MaxBytes].(float64)
		}
		if int64(most) != r.body {
			t.Errorf("%s takes a body of %d bytes, described are %v", &r, r.body, most)
		}
		checkSecurity(t, &r, o)
	}
	for _, p := range pageTable {
		if operations["GET "+p.path] == nil {
			t.Errorf("page %s is not described", p.path)
		}
		delete(operations, "GET "+p.path)
	}
	if operations["GET "+home] == nil {
		t.Errorf("%s is not described", home)
	}
	delete(operations, "GET "+home)
	for name := range operations {
		t.Errorf("%s is described and not there", name)
	}
}

func checkSecurity(t *testing.T, r *route, o *openapi3.Operation) {
	t.Helper()
	want := map[access]string{anyone: "", bySession: "session", byToken: "token"}[r.access]
	var got string
	if o.Security != nil {
		for _, requirement := range *o.Security {
			for name := range requirement {
				got += name
			}
		}
	}
	if got != want {
		t.Errorf("%s asks for the credential %q, described is %q", r, want, got)
	}
}

// Each operation names the limiter that the contract's policy counts it by, with its windows, and
// the 429 of its surface.
func TestEveryOperationIsDescribedWithItsLimiter(t *testing.T) {
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	decider := contractDecider(t)
	for path, item := range d.Spec.Paths.Map() {
		for method, o := range item.Operations() {
			name := method + " " + path
			l := decider.Match(method, "", strings.ReplaceAll(path, "{id}", "x")).Limiter()
			said, _ := o.Extensions["x-weir-limiter"].(map[string]any)
			if l == nil {
				if said != nil || o.Responses.Status(http.StatusTooManyRequests) != nil {
					t.Errorf("%s is described as limited, and is not", name)
				}
				continue
			}
			var windows []any
			for _, w := range l.Windows {
				windows = append(windows, w.String())
			}
			if said["name"] != l.Name || fmt.Sprint(said["windows"]) != fmt.Sprint(windows) {
				t.Errorf("%s is counted by %s, %v; described is %v", name, l.Name, windows, said)
			}
			want := "#/components/responses/TooManyWidgetRequests"
			if l.Message == "bulk-sync" {
				want = "#/components/responses/TooManySyncRequests"
			}
			if got := o.Responses.Status(http.StatusTooManyRequests); got == nil || got.Ref != want {
				t.Errorf("%s: the 429 is described by %v, want %s", name, got, want)
			}
		}
	}
}

// contractDecider decides by the contract, for its routes.
func contractDecider(t *testing.T) *weir.Decider {
	t.Helper()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	decider, err := weir.New(policyfile.Contract(), store, weir.Options{Sources: identity.Sources()})
	if err != nil {
		t.Fatal(err)
	}
	return decider
}
