package weir

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const customerKey = "sk_live_acme/4711+4711=4711"

// keyPolicy counts by token, and has a budget of its own for the key "gold".
const keyPolicy = `limiters:
  - name: api
    routes: [/*]
    windows: [8 per hour by token]
    requires: token
    overrides: [20 per hour for token gold.1]
`

// lineOfKey returns the line of a token file, as weir token hash prints it.
func lineOfKey(t *testing.T, key string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(append([]string{"token", "hash"}, args...), nil, strings.NewReader(key+"\n"), &out, &errs); code != 0 {
		t.Fatalf("weir token hash %q: status %d: %s", args, code, errs.String())
	}
	if strings.Contains(out.String()+errs.String(), key) {
		t.Fatalf("weir token hash prints the key: %s%s", out.String(), errs.String())
	}
	return out.String()
}

// serveKeys serves a backend by keyPolicy and a file of customerKey (acme), another one (gold.1)
// and one that has expired (old).
func serveKeys(t *testing.T, backend string, args ...string) *server {
	t.Helper()
	dir := t.TempDir()
	policy, keys := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "keys")
	lines := lineOfKey(t, customerKey, "--id", "acme", "--plan", "free") +
		lineOfKey(t, customerKey+"-gold", "--id", "gold.1") +
		lineOfKey(t, customerKey+"-old", "--id", "old", "--expires", "2020-01-31")
	for path, content := range map[string]string{policy: keyPolicy, keys: lines} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return serveWeir(t, append([]string{"--policy", policy, "--upstream", backend, "--token-file", keys}, args...)...)
}

// An echo keeps what a backend received.
type echo struct {
	mu   sync.Mutex
	seen []string
}

func (e *echo) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var b strings.Builder
	b.WriteString(r.RequestURI + " " + r.Header.Get("Authorization") + " " + r.Header.Get("X-Api-Key"))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, b.String())
}

// last returns what the last request was.
func (e *echo) last() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.seen) == 0 {
		return ""
	}
	return strings.TrimSpace(e.seen[len(e.seen)-1])
}

// Keys of another service are read from each place that is named, count as one caller, and are
// neither forwarded nor logged (D15, D16).
func TestKeysOfAnotherServiceAreReadFromEveryPlace(t *testing.T) {
	received := new(echo)
	backend := httptest.NewServer(received)
	defer backend.Close()
	s := serveKeys(t, backend.URL, "--token-from", "bearer,header:X-Api-Key", "--token-from", "basic", "--token-from", "query:api_key")

	escaped := strings.NewReplacer("/", "%2F", "+", "%2B", "=", "%3D").Replace(customerKey)
	left := int64(8)
	for _, c := range []struct {
		place, query string
		args         []string
		want         string // what the backend gets
	}{
		{"bearer", "?a=1", []string{"-H", "Authorization: Bearer " + customerKey}, "/x?a=1 Bearer " + customerKey},
		{"header", "?a=%zz", []string{"-H", "X-Api-Key: " + customerKey}, "/x?a=%zz"},
		{"basic", "", []string{"-u", customerKey + ":"}, "/x"},
		{"basic with a password", "", []string{"-u", customerKey + ":ignored"}, "/x"},
		{"query", "?a=1&api_key=" + escaped + "&&b=+%20", nil, "/x?a=1&&b=+%20"},
	} {
		left--
		r := curl(t, append([]string{s.url + "/x" + c.query}, c.args...)...)
		if r.status != 200 || r.integer(t, "X-RateLimit-Remaining") != left || received.last() != c.want {
			t.Errorf("%s: %d %v, want 200 with %d remaining; the backend gets %q, want %q", c.place, r.status, r.fields, left, received.last(), c.want)
		}
	}
	if r := curl(t, s.url+"/h2?api_key="+escaped, "--http2-prior-knowledge", "-H", "X-Api-Key: "+customerKey); r.status != 200 || received.last() != "/h2" {
		t.Errorf("HTTP/2: %d, the backend gets %q", r.status, received.last())
	}
	if r := curl(t, s.url+"/x", "-H", "X-Api-Key: "+customerKey+"-gold"); r.status != 200 || r.integer(t, "X-RateLimit-Limit") != 20 {
		t.Errorf("the key with an override: %d %v", r.status, r.fields)
	}
	for name, args := range map[string][]string{
		"none":           nil,
		"unknown":        {"-H", "X-Api-Key: " + customerKey + "-unknown"},
		"expired":        {"-H", "X-Api-Key: " + customerKey + "-old"},
		"two keys":       {"-H", "X-Api-Key: " + customerKey, "-u", customerKey + "-gold:"},
		"a header twice": {"-H", "X-Api-Key: " + customerKey, "-H", "x-api-key: " + customerKey},
	} {
		r := curl(t, append([]string{s.url + "/x"}, args...)...)
		if r.status != 401 || !strings.Contains(string(r.body), "X-Api-Key: <key>") || strings.Contains(string(r.body), "weir token create") {
			t.Errorf("%s: %d %s, want 401 that says where a key goes", name, r.status, r.body)
		}
	}
	s.end(t)
	printed := s.stdout.String() + s.stderr.String()
	if strings.Contains(printed, customerKey) || strings.Contains(printed, escaped) || !strings.Contains(printed, "path=/x ") {
		t.Errorf("the server printed a key, or no access log:\n%s", printed)
	}
}

func TestTheUpstreamGetsThePlacesThatItIsToldTo(t *testing.T) {
	received := new(echo)
	backend := httptest.NewServer(received)
	defer backend.Close()
	for forward, want := range map[string][2]string{
		"":       {"/x Bearer " + customerKey, "/x"},
		"bearer": {"/x Bearer " + customerKey, "/x"},
		"all":    {"/x Bearer " + customerKey, "/x  " + customerKey},
		"none":   {"/x", "/x"},
	} {
		args := []string{"--token-from", "bearer,header:X-Api-Key"}
		if forward != "" {
			args = append(args, "--token-forward", forward)
		}
		s := serveKeys(t, backend.URL, args...)
		for i, field := range []string{"Authorization: Bearer ", "X-Api-Key: "} {
			if r := curl(t, s.url+"/x", "-H", field+customerKey); r.status != 200 || received.last() != want[i] {
				t.Errorf("--token-forward %q: %d, the backend gets %q, want %q", forward, r.status, received.last(), want[i])
			}
		}
		s.end(t)
	}
}

func TestAKeyToHashIsReadFromStandardInput(t *testing.T) {
	const plain = "sk_live_47114711" // of letters that an id may have
	var out, errs bytes.Buffer
	for _, c := range []struct {
		args  []string
		stdin string
		code  int
		want  string
	}{
		{[]string{"--id", "acme"}, "short", 1, "the key has 5 characters: expected 16 to 8192"},
		{[]string{"--id", "a b"}, customerKey, 2, "1 to 64 letters"},
		{nil, customerKey, 2, "for example: weir token hash --id acme"},
		{[]string{"--id", "acme", "--plan", "a b"}, customerKey, 2, `--plan= has a character that is not allowed, number 2 of 3`},
		{[]string{"--id", "acme", "--expires", "tomorrow"}, customerKey, 2, `--expires= has 8 characters and is no time: expected a date`},
		{[]string{"--id", "acme", customerKey}, "", 2, "the key is read from standard input and not from an argument"},
		{[]string{"--id", plain}, plain, 2, "--id is the key itself: an id is public"},
	} {
		out.Reset()
		errs.Reset()
		code := run(append([]string{"token", "hash"}, c.args...), nil, io.Reader(strings.NewReader(c.stdin)), &out, &errs)
		if strings.Contains(errs.String(), customerKey) || strings.Contains(errs.String(), plain) {
			t.Errorf("%q: the key is printed: %s", c.args, errs.String())
		}
		if code != c.code || out.Len() > 0 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%q: status %d %s%s, want %d …%s…", c.args, code, out.String(), errs.String(), c.code, c.want)
		}
	}
}
