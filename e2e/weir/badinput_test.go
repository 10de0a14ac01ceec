package weir

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Bad input is answered with a clear error in the contract's format, with the
// fields. It stores nothing.
func TestBadInput(t *testing.T) {
	s := serveWeir(t)
	visitor, other, api := session(t, s.url), session(t, s.url), apiToken(t, s.data, "demo")
	as := func(credential string) []string { return []string{"-H", "Authorization: Bearer " + credential} }
	expired, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sid": "x", "exp": time.Now().Add(-time.Hour).Unix()}).
		SignedString([]byte("another secret of thirty-two bytes"))
	if err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(t.TempDir(), "large.json")
	if err := os.WriteFile(large, []byte(`{"note":"`+strings.Repeat("x", 20<<20)+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	invalid := filepath.Join(t.TempDir(), "invalid.json")
	if err := os.WriteFile(invalid, []byte("{\"email\":\"\xff@example.com\"}"), 0o600); err != nil {
		t.Fatal(err)
	}
	const widget = "/api/v1/widget/"
	for _, row := range []struct {
		name   string
		path   string
		more   []string
		status int
		code   string
	}{
		{"malformed JSON", widget + "leads", append(as(visitor), "-d", `{"email":`), 400, "invalid_request"},
		{"not an object", widget + "leads", append(as(visitor), "-d", `[]`), 400, "invalid_request"},
		{"two values", widget + "leads", append(as(visitor), "-d", leadBody+leadBody), 400, "invalid_request"},
		{"nothing", widget + "leads", append(as(visitor), "-d", ``), 400, "invalid_request"},
		{"a wrong type", widget + "leads", append(as(visitor), "-d", `{"email":7}`), 400, "invalid_request"},
		{"an unknown field", widget + "leads", append(as(visitor), "-d", `{"email":"ada@example.com","emial":"x"}`), 400, "invalid_request"},
		{"invalid UTF-8", widget + "leads", append(as(visitor), "--data-binary", "@"+invalid), 400, "invalid_request"},
		{"a body too large", widget + "leads", append(as(visitor), "--data-binary", "@"+large, "-H", "Expect:"), 413, "payload_too_large"},
		{"another type", widget + "leads", append(as(visitor), "-d", leadBody, "-H", "Content-Type: text/plain"), 415, "unsupported_media_type"},
		{"an unknown agent", widget + "init", []string{"-d", `{"agent_id":"nobody"}`}, 404, "not_found"},
		{"no agent", widget + "init", []string{"-d", `{}`, "-H", "User-Agent:"}, 400, "invalid_request"},
		{"no session", widget + "leads", []string{"-d", leadBody}, 401, "unauthenticated"},
		{"an expired session", widget + "leads", append(as(expired), "-d", leadBody), 401, "unauthenticated"},
		{"an API token where a session is meant", widget + "leads", append(as(api), "-d", leadBody), 401, "unauthenticated"},
		{"a session where an API token is meant", "/v1/wp/status", append(as(visitor), "-G"), 401, "unauthenticated"},
		{"a mistyped API token", "/v1/wp/status", append(as(api[:len(api)-1]+"?"), "-G"), 401, "unauthenticated"},
		{"an unknown conversation", widget + "conversations/nowhere", append(as(visitor), "-G"), 404, "not_found"},
		{"another session's conversation", widget + "conversations/" + conversation(t, s.url, other), append(as(visitor), "-G"), 404, "not_found"},
		{"an unknown coupon", widget + "coupon/apply", append(as(visitor), "-d", `{"code":"NONE"}`), 404, "not_found"},
		{"an unknown endpoint", widget + "nowhere", append(as(visitor), "-G"), 404, "not_found"},
		{"a wrong method", widget + "leads", append(as(visitor), "-X", "DELETE"), 405, "method_not_allowed"},
		{"a lower-case method", widget + "leads", append(as(visitor), "-X", "post", "-d", leadBody), 405, "method_not_allowed"},
		{"an unreadable path", widget + "leads%2f", append(as(visitor), "-d", leadBody), 400, "invalid_request"},
		{"a score out of range", widget + "satisfaction", append(as(visitor), "-d", `{"score":6}`), 400, "invalid_request"},
	} {
		t.Run(row.name, func(t *testing.T) {
			args := append([]string{s.url + row.path, "--path-as-is", "-H", "Content-Type: application/json"}, row.more...)
			r := curl(t, args...)
			if r.status != row.status || r.code(t) != row.code {
				t.Errorf("%d %s, want %d %s", r.status, r.body, row.status, row.code)
			}
			wantSurfaceFields(t, row.name, r)
		})
	}
	db := database(t, s.data)
	if n := counted(t, db, "SELECT count(*) FROM leads"); n != 0 {
		t.Errorf("%d leads are stored; every one was refused", n)
	}
	s.end(t)
}

// conversation returns the id of a session's first conversation.
func conversation(t *testing.T, url, visitor string) string {
	t.Helper()
	r := curl(t, url+"/api/v1/widget/conversations", "-X", "POST", "-H", "Authorization: Bearer "+visitor)
	var ids map[string]any
	if err := json.Unmarshal([]byte(r.body), &ids); err != nil || r.status != 201 {
		t.Fatalf("start a conversation: %d %s", r.status, r.body)
	}
	if nested, ok := ids["conversation"].(map[string]any); ok {
		ids = nested
	}
	for _, name := range []string{"id", "conversation_id"} {
		if id, ok := ids[name].(string); ok {
			return id
		}
	}
	t.Fatalf("start a conversation: no id in %s", r.body)
	return ""
}

// items returns the body of a bulk upsert of n documents; the one at bad, if any,
// has no id.
func items(n, bad int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"id":"doc-%d","title":"Title %d","url":"https://example.com/%d","text":"Text %d"}`, i, i, i, i)
		if i == bad {
			all[i] = `{"id":"","title":"no id","url":"https://example.com/","text":"x"}`
		}
	}
	return `{"items":[` + strings.Join(all, ",") + `]}`
}

func TestABulkUpsertIsAppliedWholeOrNotAtAll(t *testing.T) {
	s := serveWeir(t)
	api := apiToken(t, s.data, "shop")
	put := func(body string) reply {
		file := filepath.Join(t.TempDir(), "items.json")
		if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		return curl(t, "-X", "PUT", s.url+"/v1/wp/documents", "-H", "Authorization: Bearer "+api,
			"-H", "Content-Type: application/json", "--data-binary", "@"+file)
	}
	db := database(t, s.data)
	documents := func() int { return counted(t, db, "SELECT count(*) FROM documents WHERE workspace_id = 'shop'") }

	r := put(items(500, 499))
	if r.status != 422 || r.code(t) != "unprocessable" || !strings.Contains(r.body, "499") {
		t.Errorf("499 good items and one bad: %d %s; want 422 that names item 499", r.status, r.body)
	}
	wantSurfaceFields(t, "one bad item", r)
	if n := documents(); n != 0 {
		t.Errorf("%d documents of a refused upsert are stored", n)
	}
	for range 2 { // idempotent by external id
		if r := put(items(500, -1)); r.status/100 != 2 {
			t.Errorf("500 good items: %d %s", r.status, r.body)
		}
		if n := documents(); n != 500 {
			t.Errorf("%d documents are stored, want 500", n)
		}
	}
	if r := put(items(501, -1)); r.status/100 != 4 {
		t.Errorf("501 items: %d %s", r.status, r.body)
	}
	s.end(t)
}

// If another process holds the database, a 5xx arrives in time and nothing is
// half-written. Once the database is free, requests succeed.
func TestABusyDatabaseIsAnErrorAndNotAWait(t *testing.T) {
	s := serveWeir(t)
	visitor := session(t, s.url)
	conn, err := database(t, s.data).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exec := func(statement string) {
		if _, err := conn.ExecContext(context.Background(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	args := []string{s.url + "/api/v1/widget/leads", "-H", "Authorization: Bearer " + visitor, "-H", "Content-Type: application/json", "-d", leadBody}
	exec("BEGIN IMMEDIATE")
	r := curl(t, args...)
	if r.status/100 != 5 {
		t.Errorf("while the database is held: %d %s, want a 5xx", r.status, r.body)
	}
	r.code(t)
	wantSurfaceFields(t, "busy", r)
	exec("ROLLBACK")
	if r := curl(t, args...); r.status != 201 {
		t.Errorf("once it is free: %d %s", r.status, r.body)
	}
	var n int
	if err := conn.QueryRowContext(t.Context(), "SELECT count(*) FROM leads").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d leads are stored (%v), want the one that was acknowledged", n, err)
	}
	s.end(t)
}
