package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/live"
)

// audit returns the log's lines after the first one, the creation of the operator's
// token.
func (f *fixture) audit() (lines []map[string]any) {
	f.Helper()
	b, err := os.ReadFile(f.path("audit.log"))
	if err != nil && !os.IsNotExist(err) {
		f.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		var entry map[string]any
		if line == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			f.Errorf("%v: %q", err, line)
		}
		lines = append(lines, entry)
	}
	if len(lines) == 0 || lines[0]["who"] != "start" || lines[0]["what"] != "admin token created" {
		f.Fatalf("the creation of the operator's token is not logged first: %v", lines)
	}
	return lines[1:]
}

func TestAChangeThatCannotBeLoggedIsNotMade(t *testing.T) {
	f := newFixture(t, nil)
	f.spend(5, "/leads", "192.0.2.7:1")
	if err := os.Remove(f.path("audit.log")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(f.path("audit.log"), 0o700); err != nil { // appending to it fails
		t.Fatal(err)
	}
	f.refused(f.post("/keys/reset", `{"ip":"192.0.2.7","why":"x"}`), 503, "audit_unavailable")
	f.refused(f.post("/keys/grant", `{"ip":"192.0.2.7","limiter":"leads","times":2,"for":"1h","why":"x"}`), 503, "audit_unavailable")
	next := call{method: "POST", path: "/policy", body: strings.ReplaceAll(policyText, "5 per", "6 per"), header: map[string]string{"Content-Type": "application/yaml"}}
	f.refused(next, 503, "audit_unavailable")
	if _, err := f.tokens.Create(t.Context(), "ada", admin.Admin, ""); !errors.Is(err, admin.ErrAudit) {
		t.Errorf("%v", err)
	}
	if err := f.tokens.Revoke(t.Context(), admin.Operator, ""); !errors.Is(err, admin.ErrAudit) {
		t.Errorf("%v", err)
	}
	var got inspection
	f.answered(call{method: "GET", path: "/keys?ip=192.0.2.7&limiter=leads"}, &got)
	if got.String() != "leads 5/5, leads 5/20" {
		t.Errorf("%v", got)
	}
	if err := os.Remove(f.path("audit.log")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.path("audit.log"), []byte(`{"half`), 0o600); err != nil {
		t.Fatal(err)
	}
	f.answered(next, nil)
	b, err := os.ReadFile(f.path("audit.log"))
	if err != nil || !strings.HasPrefix(string(b), "{\"half\n{\"time\":") || !strings.HasSuffix(string(b), "}\n") || !strings.Contains(string(b), `"who":"token operator","what":"policy"`) {
		t.Errorf("%v: %q", err, b)
	}
}

func TestAReloadBySignalIsLogged(t *testing.T) {
	dir := t.TempDir()
	audit, err := admin.OpenAudit(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := audit.PolicyChange(live.Change{By: "SIGHUP", Source: live.File, Path: "weir.yaml", Version: "b", Was: "a"}); err != nil {
		t.Fatal(err)
	}
	again, err := admin.OpenAudit(t.Context(), dir, nil) // another process
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Append(context.Background(), admin.Entry{Who: "command line", What: "x"}); err != nil {
		t.Fatal(err)
	}
	all, err := audit.Last(10)
	if err != nil || len(all) != 2 || !strings.Contains(string(all[0]), `"who":"SIGHUP"`) {
		t.Errorf("%s, %v", all, err)
	}
}

func TestConcurrentProcessesLogWholeLines(t *testing.T) {
	dir := t.TempDir()
	const processes, each = 4, 10
	var all sync.WaitGroup
	for i := range processes {
		all.Go(func() {
			audit, err := admin.OpenAudit(t.Context(), dir, nil)
			if err != nil {
				t.Error(err)
				return
			}
			for range each {
				if err := audit.Append(t.Context(), admin.Entry{Who: fmt.Sprint("process ", i), What: "x", Why: strings.Repeat("\n", 2000)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	audit, err := admin.OpenAudit(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := audit.Last(1000)
	b, readErr := os.ReadFile(dir + "/audit.log")
	if err != nil || readErr != nil || len(lines) != processes*each || strings.Count(string(b), "\n") != processes*each {
		t.Errorf("%d lines, %v, %v", len(lines), err, readErr)
	}
}

// If another policy comes into force between the log entry and the change, the
// change is not made, and the log records that.
func TestAChangeNeedsThePolicyOfItsLogEntry(t *testing.T) {
	var once sync.Once
	var policy *live.Policy
	dir := t.TempDir()
	f := newFixture(t, func(o *admin.Options) {
		policy = o.Policy
		audit, err := admin.OpenAudit(t.Context(), dir, func() time.Time {
			once.Do(func() {
				if err := policy.Post(t.Context(), live.Author{By: "somebody"}, []byte(strings.ReplaceAll(policyText, "5 per", "6 per"))); err != nil {
					t.Error(err)
				}
			})
			return time.Unix(start, 0)
		})
		if err != nil {
			t.Fatal(err)
		}
		o.Audit = audit
	})
	f.spend(5, "/leads", "192.0.2.7:1")
	f.refused(f.post("/keys/reset", `{"ip":"192.0.2.7","why":"x"}`), 409, "policy_changed")
	var got inspection
	f.answered(call{method: "GET", path: "/keys?ip=192.0.2.7&limiter=leads"}, &got)
	if got.String() != "leads 5/6, leads 5/20" {
		t.Errorf("%v", got)
	}
	text, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	if err != nil || !strings.Contains(string(text), `"reset failed"`) {
		t.Errorf("%v\n%s", err, text)
	}
	f.answered(f.post("/keys/reset", `{"ip":"192.0.2.7","why":"x"}`), &got)
}

// A reason may hold any character. The log has it whole, on one line, and sends nothing to a
// terminal that prints the log.
func TestAReasonIsLoggedWholeAndHarmless(t *testing.T) {
	f := newFixture(t, nil)
	reason := "ÃĪ \x1b[2J\u009b2J\x7f\r\n\u202egnp\u2066\u00a0\U000e0041 </script> \"quoted\" 日本"
	body, err := json.Marshal(map[string]string{"ip": "192.0.2.7", "why": reason})
	if err != nil {
		t.Fatal(err)
	}
	f.answered(f.post("/keys/reset", string(body)), nil)
	posted := call{method: "POST", path: "/policy?why=" + url.QueryEscape(reason), body: policyText, header: map[string]string{"Content-Type": "application/yaml"}}
	f.answered(posted, nil)
	if _, err := f.tokens.Create(t.Context(), "bob", admin.Read, reason); err != nil {
		t.Fatal(err)
	}
	if err := f.tokens.Revoke(t.Context(), "bob", reason); err != nil {
		t.Fatal(err)
	}
	lines := f.audit()
	if len(lines) != 4 {
		t.Fatalf("%d entries: %v", len(lines), lines)
	}
	for i, what := range []string{"reset", "policy", "admin token created", "admin token revoked"} {
		if lines[i]["what"] != what || lines[i]["why"] != reason {
			t.Errorf("entry %d: %q %q, want %s with the reason", i, lines[i]["what"], lines[i]["why"], what)
		}
	}
	if role := lines[2]["after"].(map[string]any)["role"]; role != "read" {
		t.Errorf("the role of the created token: %v", role)
	}
	raw, err := os.ReadFile(f.path("audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"audit.log": string(raw), "the server's log": f.log.String()} {
		for _, r := range text {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%s has the character %U", name, r)
			}
		}
	}
	if !strings.Contains(f.log.String(), "</script>") {
		t.Errorf("the server's log has no reason:\n%s", f.log.String())
	}
	var shown struct{ Entries []struct{ Why string } }
	f.answered(call{method: "GET", path: "/audit"}, &shown)
	if last := shown.Entries[len(shown.Entries)-1]; last.Why != reason {
		t.Errorf("GET /audit: %q", last.Why)
	}
}

func TestAReasonIsBounded(t *testing.T) {
	f := newFixture(t, nil)
	yaml := map[string]string{"Content-Type": "application/yaml"}
	most := strings.Repeat("é", admin.MaxWhy/2)
	f.answered(call{method: "POST", path: "/policy?why=" + url.QueryEscape(most), body: policyText, header: yaml}, nil)
	for query, want := range map[string]string{
		"why=" + url.QueryEscape(most+"x"): "422 invalid_why", "why=%ff": "422 invalid_why",
		"why=a&why=b": "400 invalid_query", "reason=a": "400 invalid_query", "why=%zz": "400 invalid_query", "a;b": "400 invalid_query",
	} {
		code, name, _ := strings.Cut(want, " ")
		status, _ := strconv.Atoi(code)
		f.refused(call{method: "POST", path: "/policy?" + query, body: policyText, header: yaml}, status, name)
	}
	if _, err := f.tokens.Create(t.Context(), "bob", admin.Read, most+"x"); err == nil {
		t.Error("a reason of 1001 bytes is accepted")
	}
	if err := f.tokens.Revoke(t.Context(), admin.Operator, most+"x"); err == nil {
		t.Error("a reason of 1001 bytes is accepted")
	}
	if lines := f.audit(); len(lines) != 1 || lines[0]["why"] != most {
		t.Errorf("%d entries", len(lines))
	}
}

// The status has another number after each entry, so that the dashboard reads the log only then.
func TestTheStatusChangesWithTheAuditLog(t *testing.T) {
	f := newFixture(t, nil)
	var before, idle, after struct{ Changes int64 }
	f.answered(call{method: "GET", path: "/status"}, &before)
	f.answered(call{method: "GET", path: "/status"}, &idle)
	f.answered(f.post("/keys/reset", `{"ip":"192.0.2.7","why":"x"}`), nil)
	f.answered(call{method: "GET", path: "/status"}, &after)
	if before.Changes != idle.Changes || after.Changes == idle.Changes {
		t.Errorf("%d, %d, and after a change %d", before.Changes, idle.Changes, after.Changes)
	}
}
