package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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
	if _, err := f.tokens.Create(t.Context(), "ada"); !errors.Is(err, admin.ErrAudit) {
		t.Errorf("%v", err)
	}
	if err := f.tokens.Revoke(t.Context(), admin.Operator); !errors.Is(err, admin.ErrAudit) {
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
				if err := policy.Post(t.Context(), "somebody", []byte(strings.ReplaceAll(policyText, "5 per", "6 per"))); err != nil {
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
