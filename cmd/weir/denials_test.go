package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/internal/denial"
	"github.com/weirlimit/weir/internal/live"
)

const deniedPolicy = "limiters:\n  - name: all\n    routes: [/*]\n    windows: [%d per minute by session or ip, 1000 per hour by agent]\n"

// openerOf opens what a server with that key has sealed, as another node would.
func openerOf(t *testing.T, key []byte) *denial.Sealer {
	t.Helper()
	s, err := denial.New(func() []byte { return key }, nil, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The id of a real 429 tells which window refused whom, to whoever has the key of the data directory; it outlives its server.
func TestA429CarriesAnIDThatOpensToTheFacts(t *testing.T) {
	s := serveWeir(t)
	lead := func(args ...string) reply {
		return curl(t, append([]string{s.url + "/api/v1/widget/satisfaction", "-d", "x", "-H", "Origin: https://shop.example"}, args...)...)
	}
	var ids []string
	for range 62 {
		r := lead()
		id := r.values("X-Weir-Denial")
		if want := r.status == http.StatusTooManyRequests; (len(id) == 1) != want {
			t.Fatalf("a %d carries the ids %q", r.status, id)
		}
		if exposed := r.one(t, "Access-Control-Expose-Headers"); !strings.HasSuffix(exposed, ", X-Weir-Denial") {
			t.Errorf("a script may read %s of a %d", exposed, r.status)
		}
		ids = append(ids, id...)
	}
	if r := curl(t, s.url+"/api/v1/widget/leads", "-d", "{}"); r.status != 401 || len(r.values("X-Weir-Denial")) > 0 {
		t.Errorf("a %d carries an id: %q", r.status, r.fields)
	}
	s.end(t)
	key, err := readKey(filepath.Join(s.data, denialKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(ids) != 2 {
		t.Fatalf("%d were refused, want 2", len(ids))
	}
	for _, id := range ids {
		f, err := openerOf(t, key).Open(id)
		if err != nil {
			t.Fatal(err)
		}
		policy, err := readPolicy(nil, "")
		if err != nil {
			t.Fatal(err)
		}
		if f.Limiter != "widget-satisfaction" || f.Window != "60 per minute by ip" || f.Limit != 60 || f.Count != 60 || f.Reset <= f.At || f.Reset > f.At+60 ||
			f.Policy != live.Version(policy.Policy) || len(f.Callers) != 1 || f.Callers[0].Source != "ip" || !bytes.Equal(f.Callers[0].Value, []byte{127, 0, 0, 1}) {
			t.Errorf("the id opens to %+v", f)
		}
		if len(id) > 250 {
			t.Errorf("the id has %d characters: %s", len(id), id)
		}
	}
	again := serveIn(t, s.data)
	again.end(t)
	if kept, err := readKey(filepath.Join(s.data, denialKeyFile)); err != nil || !bytes.Equal(kept, key) {
		t.Errorf("after a restart the key is another one, %v", err)
	}
}

// assembled returns an edge before an upstream, with the store at url; empty means the embedded one.
func assembled(t *testing.T, limit int, url string) *edge {
	t.Helper()
	policy, err := readPolicy(strings.NewReader(fmt.Sprintf(deniedPolicy, limit)), "-")
	if err != nil {
		t.Fatal(err)
	}
	f := defaultServeFlags()
	f.data, f.accessLog = t.TempDir(), false
	if err := f.upstream.Set(accepting(t)); err != nil {
		t.Fatal(err)
	}
	if url != "" {
		if err := f.store.Set(url); err != nil {
			t.Fatal(err)
		}
	}
	e, err := assemble(t.Context(), f, policy.Policy, slog.New(slog.DiscardHandler), io.Discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// refusedBy sends requests until one is refused, and returns its id.
func refusedBy(t *testing.T, e *edge) string {
	t.Helper()
	for range 100 {
		w := httptest.NewRecorder()
		e.gateway.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code == http.StatusTooManyRequests {
			return w.Result().Header.Get("X-Weir-Denial")
		}
	}
	t.Fatal("nobody is refused")
	return ""
}

// Nodes that share a store open each other's ids. While the store is away a node that was never told the secret seals with one of
// its own, and the others can say so.
func TestNodesOpenEachOthersIDs(t *testing.T) {
	redis := redistest.Start(t)
	one, other := assembled(t, 2, redis.URL()), assembled(t, 2, redis.URL())
	id := refusedBy(t, one)
	for _, e := range []*edge{one, other} {
		if f, err := e.denials.Open(id); err != nil || f.Limiter != "all" || f.Limit != 2 {
			t.Errorf("it opens to %+v, %v", f, err)
		}
	}
	if _, err := assembled(t, 2, "").denials.Open(id); err == nil || !strings.Contains(err.Error(), "another secret") {
		t.Errorf("a stranger's answer: %v", err)
	}
	redis.Stop()
	alone := assembled(t, 2, redis.URL())
	id = refusedBy(t, alone)
	if f, err := alone.denials.Open(id); err != nil || f.Limiter != "all" {
		t.Errorf("to itself it opens to %+v, %v", f, err)
	}
	if _, err := one.denials.Open(id); err == nil || !strings.Contains(err.Error(), "no shared secret") {
		t.Errorf("to another node: %v", err)
	}
}

// An id tells the policy of its own time.
func TestAnIDTellsThePolicyInForce(t *testing.T) {
	e := assembled(t, 2, "")
	for _, version := range []string{"01234567", "89abcdef"} {
		e.denials.under(live.State{Version: version})
		if f, err := e.denials.Open(refusedBy(t, e)); err != nil || f.Policy != version {
			t.Errorf("under %s it opens to %+v, %v", version, f, err)
		}
	}
}

func TestProcessesThatStartAtOnceKeepOneKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, denialKeyFile)
	keys := make([][]byte, 50)
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range keys {
		all.Go(func() {
			<-start
			var err error
			if keys[i], err = keptKey(path, rand.Reader); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	all.Wait()
	for _, key := range keys {
		if !bytes.Equal(key, keys[0]) || len(key) != denialKeySize {
			t.Fatalf("one has the key %x, another %x", keys[0], key)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v is left, %v", left, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
}

// A file that cannot be the key stays as it is.
func TestAWrongKeyIsNeverReplaced(t *testing.T) {
	for what, content := range map[string]string{"an empty file": "", "a short one": strings.Repeat("k", 31), "a long one": strings.Repeat("k", 33)} {
		path := filepath.Join(t.TempDir(), denialKeyFile)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var wrong *wrongKeyError
		if _, err := keptKey(path, rand.Reader); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", what, err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != content {
			t.Errorf("%s is %q now, %v", what, b, err)
		}
	}
	dir := filepath.Join(t.TempDir(), denialKeyFile)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var wrong *wrongKeyError
	if _, err := keptKey(dir, rand.Reader); !errors.As(err, &wrong) {
		t.Errorf("a directory: %v", err)
	}
	if _, err := keptKey(filepath.Join(t.TempDir(), "gone", denialKeyFile), rand.Reader); err == nil {
		t.Error("there is a key in a directory that is not there")
	}
	if _, err := keptKey(filepath.Join(t.TempDir(), denialKeyFile), strings.NewReader("not random enough")); err == nil {
		t.Error("a key is shorter than it says")
	}
}
