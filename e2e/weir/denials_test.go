package weir

import (
	"bytes"
	"crypto/rand"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/internal/denial"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/policyfile"
)

// openerOf returns a Sealer that opens what a server with that key has sealed, as
// another node would.
func openerOf(t *testing.T, key []byte) *denial.Sealer {
	t.Helper()
	s, err := denial.New(func() []byte { return key }, nil, rand.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The id of a real 429 reveals the window and the caller, if one has the data
// directory's key. It remains valid after its server has ended.
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
	key, err := os.ReadFile(filepath.Join(s.data, "denial.key"))
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
		if f.Limiter != "widget-satisfaction" || f.Window != "60 per minute by ip" || f.Limit != 60 || f.Count != 60 || f.Reset <= f.At || f.Reset > f.At+60 ||
			f.Policy != live.Version(policyfile.Contract()) || len(f.Callers) != 1 || f.Callers[0].Source != "ip" || !bytes.Equal(f.Callers[0].Value, []byte{127, 0, 0, 1}) {
			t.Errorf("the id opens to %+v", f)
		}
		if len(id) > 250 {
			t.Errorf("the id has %d characters: %s", len(id), id)
		}
	}
	again := serveIn(t, s.data)
	again.end(t)
	if kept, err := os.ReadFile(filepath.Join(s.data, "denial.key")); err != nil || !bytes.Equal(kept, key) {
		t.Errorf("after a restart the key is another one, %v", err)
	}
}

// refusedID sends requests until one is refused, and returns the refusal's id.
func (s *server) refusedID(t *testing.T) string {
	t.Helper()
	for range 100 {
		r, err := http.Get(s.url)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode == http.StatusTooManyRequests {
			return r.Header.Get("X-Weir-Denial")
		}
	}
	t.Fatal("no request is refused")
	return ""
}

// explain asks a server's admin listener about an id.
func (s *server) explain(t *testing.T, id string) (stdout, stderr string) {
	t.Helper()
	m, err := s.stdout.await(adminAt)
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr, _ = weirCommand(t.Context(), t, "denial", id, "--admin", m[1], "--data", s.data)
	return stdout, stderr
}

// Nodes that share a store open each other's ids. If a node starts during an outage
// of the store, it does not know the secret: it seals with a secret of its own, and
// the others report that.
func TestNodesOpenEachOthersIDs(t *testing.T) {
	redis := redistest.Start(t)
	args := []string{"--upstream", accepting(t), "--policy", allByAddress(t, 2)}
	shared := append(args, "--store", redis.URL())
	one, other := serveWeir(t, append(shared, patient)...), serveWeir(t, append(shared, patient)...)
	id := one.refusedID(t)
	opens := func(s *server, id string) {
		t.Helper()
		if stdout, stderr := s.explain(t, id); !regexp.MustCompile(`(?m)^limiter +all$`).MatchString(stdout) || !regexp.MustCompile(`(?m)^spent +2 of 2$`).MatchString(stdout) {
			t.Errorf("it opens to\n%s%s", stdout, stderr)
		}
	}
	opens(one, id)
	opens(other, id)
	if _, stderr := serveWeir(t, args...).explain(t, id); !strings.Contains(stderr, "another secret") {
		t.Errorf("for another node's id: %s", stderr)
	}
	redis.Stop()
	alone := serveWeir(t, shared...)
	id = alone.refusedID(t)
	opens(alone, id)
	if _, stderr := one.explain(t, id); !strings.Contains(stderr, "no shared secret") {
		t.Errorf("to another node: %s", stderr)
	}
}
