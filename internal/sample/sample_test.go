package sample

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/logtest"
)

// A bench is a backend on a data directory, its clock, and one visitor and one API client of
// workspace demo.
type bench struct {
	*testing.T
	b       *Backend
	dir     string
	log     *logtest.Buffer
	clock   *clock
	session string // Authorization values
	token   string
	client  *http.Client // for requests over a socket; nil: the default client
}

// A clock shows a fixed time until a test sets it.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// in returns the same bench for a subtest.
func (k *bench) in(t *testing.T) *bench {
	sub := *k
	sub.T = t
	return &sub
}

func benchOn(t *testing.T, dir string) *bench {
	return &bench{T: t, dir: dir, log: new(logtest.Buffer), clock: &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}}
}

func setUp(t *testing.T) *bench { return setUpWith(t, Options{}) }

func setUpWith(t *testing.T, o Options) *bench {
	t.Helper()
	k := benchOn(t, t.TempDir())
	o.Dir = k.dir
	k.b = k.open(o)
	k.session = k.visitor("demo")
	k.token = k.synchroniser("demo")
	return k
}

func (k *bench) open(o Options) *Backend {
	k.Helper()
	o.Now, o.Log = k.clock.now, slog.New(slog.NewTextHandler(k.log, nil))
	b, err := Open(k.Context(), o)
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { b.Close() })
	return b
}

func (k *bench) visitor(agent string) string {
	k.Helper()
	return "Bearer " + k.send("POST /api/v1/widget/init", "", `{"agent_id":"`+agent+`"}`).want(201).text("token")
}

func (k *bench) synchroniser(workspace string) string {
	k.Helper()
	made, err := k.b.Tokens().Create(k.Context(), workspace)
	if err != nil {
		k.Fatal(err)
	}
	return "Bearer " + made.Token
}

// A reply is a response.
type reply struct {
	*bench
	status int
	header http.Header
	body   []byte
}

// send sends a request with a JSON body, or without a body if it is empty. Fields override headers,
// and remove them if empty.
func (k *bench) send(target, credential, body string, fields ...string) reply {
	k.Helper()
	method, path, _ := strings.Cut(target, " ")
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequestWithContext(k.Context(), method, "http://example.org/", reader)
	if err := setTarget(r, path); err != nil {
		k.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if credential != "" {
		r.Header.Set("Authorization", credential)
	}
	for i := 0; i < len(fields); i += 2 {
		if r.Header.Del(fields[i]); fields[i+1] != "" {
			r.Header.Set(fields[i], fields[i+1])
		}
	}
	return k.do(r)
}

func setTarget(r *http.Request, path string) error {
	u, err := r.URL.Parse(path)
	if err == nil {
		r.URL, r.RequestURI = u, path
	}
	return err
}

func (k *bench) do(r *http.Request) reply {
	return k.exchange(k.b.Handler(), r, rateHeaders...)
}

func (k *bench) widget(target, body string) reply {
	k.Helper()
	method, path, _ := strings.Cut(target, " ")
	return k.send(method+" /api/v1/widget/"+path, k.session, body)
}

func (k *bench) sync(target, body string) reply {
	k.Helper()
	method, path, _ := strings.Cut(target, " ")
	return k.send(method+" /v1/wp/"+path, k.token, body)
}

func (a reply) want(status int) reply {
	a.Helper()
	if a.status != status {
		a.Fatalf("the answer is %d %s, want %d", a.status, a.body, status)
	}
	return a
}

// wantError checks the shape and the code of an error, and that its message contains each word.
func (a reply) wantError(status int, code string, words ...string) reply {
	a.Helper()
	var e struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(a.body, &e); err != nil || a.status != status || e.Error.Code != code {
		a.Errorf("the answer is %d %s, want %d %s", a.status, a.body, status, code)
	}
	if media := a.header.Get("Content-Type"); media != "application/json" {
		a.Errorf("the error's Content-Type is %q", media)
	}
	for _, word := range words {
		if !strings.Contains(e.Error.Message, word) {
			a.Errorf("the message %q does not say %q", e.Error.Message, word)
		}
	}
	return a
}

// at returns the value of the answer at a path like "items.0.id".
func (a reply) at(path string) any {
	a.Helper()
	var value any
	if err := json.Unmarshal(a.body, &value); err != nil {
		a.Fatalf("the answer %s: %v", a.body, err)
	}
	for _, step := range strings.Split(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil || i >= len(v) {
				a.Fatalf("the answer %s has no %s", a.body, path)
			}
			value = v[i]
		default:
			a.Fatalf("the answer %s has no %s", a.body, path)
		}
	}
	return value
}

func (a reply) text(path string) string {
	a.Helper()
	s, ok := a.at(path).(string)
	if !ok {
		a.Fatalf("the answer %s has no text at %s", a.body, path)
	}
	return s
}

// says checks one value of the answer; numbers are float64, as in JSON.
func (a reply) says(path string, want any) reply {
	a.Helper()
	if got := a.at(path); got != want {
		a.Errorf("the answer's %s is %v, want %v: %s", path, got, want, a.body)
	}
	return a
}

// exec changes the database without the backend.
func (k *bench) exec(statement string) {
	k.Helper()
	db, err := sql.Open("sqlite", filepath.Join(k.dir, databaseFile))
	if err != nil {
		k.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("PRAGMA foreign_keys = 1; " + statement); err != nil {
		k.Fatal(err)
	}
}

// rows counts the rows of a table through a connection of its own.
func (k *bench) rows(table string) (n int) {
	k.Helper()
	db, err := sql.Open("sqlite", filepath.Join(k.dir, databaseFile))
	if err != nil {
		k.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
		k.Fatal(err)
	}
	return n
}
