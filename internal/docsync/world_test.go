package docsync

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/internal/folder"
)

const token = "wpt_4f2k7q9xab_verysecretverysecretverysecret"

// A world is a folder, and a server in this process that stores the documents it receives.
type world struct {
	t     *testing.T
	dir   string
	state string
	to    string

	running *Sync

	mu       sync.Mutex
	stored   map[string]map[string]string // documents on the server, by id
	requests []request
	received map[string]int // how often each id was stored

	// before, if not nil, may answer a request. If status is 0, the server answers it.
	before func(r request) (status int, body string)

	// answers GET /v1/wp/status; nil: 404
	workspace func(authorization string) (status int, name string)
	asked     int // number of such requests
}

// A request is one that the server received.
type request struct {
	method string
	size   int
	ids    []string
	items  []map[string]string
	header http.Header
}

func newWorld(t *testing.T, files map[string]string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), to: "http://weir.example", stored: map[string]map[string]string{}, received: map[string]int{}}
	w.state = filepath.Join(w.dir, ".weir-sync")
	w.write(files)
	return w
}

func (w *world) write(files map[string]string) {
	w.t.Helper()
	for name, text := range files {
		path := filepath.Join(w.dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) remove(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// many returns n files with the given text.
func many(n int, text string) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("d%d/p%04d.txt", i%7, i)] = text
	}
	return files
}

// RoundTrip is the server and the network to it.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return w.status(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var sent struct {
		Items []map[string]string `json:"items"`
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		w.t.Errorf("%s %s has no body of the surface: %v", r.Method, r.URL, err)
	}
	q := request{r.Method, len(body), nil, sent.Items, r.Header}
	for _, item := range sent.Items {
		q.ids = append(q.ids, item["id"])
	}
	w.mu.Lock()
	w.requests = append(w.requests, q)
	before := w.before
	w.mu.Unlock()
	answer := httptest.NewRecorder()
	answer.Header().Set("Content-Type", "application/json")
	if before != nil {
		status, body := before(q)
		if status < 0 {
			return nil, fmt.Errorf("the network: %s", body)
		}
		if status != 0 {
			answer.WriteHeader(status)
			_, _ = answer.WriteString(body)
			return answer.Result(), nil
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, item := range sent.Items {
		if r.Method == http.MethodDelete {
			delete(w.stored, item["id"])
			continue
		}
		w.stored[item["id"]] = item
		w.received[item["id"]]++
	}
	if r.Method == http.MethodDelete {
		fmt.Fprintf(answer, `{"deleted":%d}`, len(sent.Items))
	} else {
		fmt.Fprintf(answer, `{"created":%d,"updated":0,"unchanged":0}`, len(sent.Items))
	}
	return answer.Result(), nil
}

// status answers GET /v1/wp/status. It is not added to requests.
func (w *world) status(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	answer := httptest.NewRecorder()
	answer.Header().Set("Content-Type", "application/json")
	status, name := http.StatusNotFound, ""
	if w.workspace != nil {
		status, name = w.workspace(r.Header.Get("Authorization"))
	}
	answer.WriteHeader(status)
	if name != "" {
		fmt.Fprintf(answer, `{"workspace":%q}`, name)
	}
	return answer.Result(), nil
}

// A run is the configuration of one sync.
type run struct {
	o   Options
	ctx context.Context
}

type outcome struct {
	plan    Plan
	result  Result
	skipped map[string]string // reasons by path
	err     error
}

func (w *world) sync(change ...func(*run)) outcome {
	w.t.Helper()
	to, err := url.Parse(w.to)
	if err != nil {
		w.t.Fatal(err)
	}
	docs, err := folder.Open(w.dir, folder.Options{Base: to})
	if err != nil {
		w.t.Fatal(err)
	}
	defer docs.Close()
	r := &run{ctx: context.Background(), o: Options{
		Folder: docs, To: to, Token: token, TokenID: "4f2k7q9xab", State: w.state,
		Client: &http.Client{Transport: &Sender{Base: w}},
	}}
	for _, c := range change {
		c(r)
	}
	s, err := Open(r.o)
	if err != nil {
		return outcome{err: err}
	}
	defer s.Close()
	w.running = s
	if s.OtherToken() {
		if err := s.Confirm(r.ctx); err != nil {
			return outcome{err: err}
		}
	}
	plan, err := s.Plan(r.ctx)
	if err == nil && !r.o.DryRun {
		err = s.Push(r.ctx)
	}
	o := outcome{plan, s.Result(), map[string]string{}, err}
	for _, p := range s.Skipped() {
		o.skipped[p.Path] = p.Reason
	}
	return o
}

func prune(r *run)     { r.o.Prune = PruneSome }
func pruneMany(r *run) { r.o.Prune = PruneMany }
func all(r *run)       { r.o.All = true }
func dry(r *run)       { r.o.DryRun = true }

// done fails the test unless a run succeeded and stored and deleted the given numbers.
func (w *world) done(o outcome, stored, deleted int) {
	w.t.Helper()
	if o.err != nil || o.result != (Result{stored, deleted}) {
		w.t.Fatalf("stored and deleted %+v, want %d and %d; error %v; skipped %v", o.result, stored, deleted, o.err, o.skipped)
	}
}

// has fails the test unless the server has exactly these ids.
func (w *world) has(ids ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(ids)
	if got := slices.Sorted(maps.Keys(w.stored)); !slices.Equal(got, ids) {
		w.t.Fatalf("the server has %q, want %q", got, ids)
	}
}

// sent returns the number of requests so far.
func (w *world) sent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requests)
}

// fails fails the test unless err is a harmless *Failure that contains each of the strings.
func fails(t *testing.T, err error, says ...string) {
	t.Helper()
	f, ok := err.(*Failure)
	if !ok {
		t.Fatalf("error %v (%T), want a failure with %q", err, err, says)
	}
	for _, s := range says {
		if !strings.Contains(f.Error()+"\n"+f.Hint, s) {
			t.Errorf("failure %q, hint %q: want %q in it", f, f.Hint, s)
		}
	}
	if strings.Contains(f.Error(), token) || strings.ContainsAny(f.Error(), "\x1b\n\u009b\u202e") || len(f.Error()) > 1500 {
		t.Errorf("the failure is not harmless: %q", f)
	}
}
