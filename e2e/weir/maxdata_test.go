package weir

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The program fills its storage up to the bound, refuses more, and accepts data
// again after deletions. With twice the bound it stores more.
func TestAFullStorageIs507UntilItIsEmptied(t *testing.T) {
	const most = 1 << 20
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	plenty := "limiters:\n  - name: plenty\n    routes: [/*]\n    windows: [1000000 per minute by ip]\n"
	if err := os.WriteFile(policy, []byte(plenty), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveWeir(t, "--policy", policy, "--max-data", "1MiB")
	token, revoked := apiToken(t, s.data, "demo"), apiToken(t, s.data, "demo")
	page := func(i int) string {
		return fmt.Sprintf(`{"items":[{"id":"page-%d","title":"T","url":"https://example.org","text":%q}]}`, i, strings.Repeat("word ", 5000))
	}
	fill := func(from int) (stored int) {
		t.Helper()
		for i := from; ; i++ {
			switch status, body := sent(t, http.MethodPut, s.url+"/v1/wp/documents", token, page(i)); status {
			case http.StatusOK:
			case http.StatusInsufficientStorage:
				var refusal struct{ Error struct{ Code string } }
				if err := json.Unmarshal(body, &refusal); err != nil || refusal.Error.Code != "storage_full" {
					t.Errorf("the 507 is %s, %v", body, err)
				}
				return i
			default:
				t.Fatalf("page %d is answered %d %s", i, status, body)
			}
		}
	}
	stored := fill(0)
	if info, err := os.Stat(filepath.Join(s.data, "sample.db")); err != nil || info.Size() > most {
		t.Errorf("the file has %d bytes, %v: want at most %d", info.Size(), err, most)
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(revoked, "wpt_"), "_")
	if _, stderr, code := weirCommand(t.Context(), t, "token", "revoke", id, "--data", s.data); code != 0 {
		t.Errorf("revoke a token of a full storage: status %d: %s", code, stderr)
	}
	deleted := 0
	for i := range stored {
		status, body := sent(t, http.MethodDelete, s.url+"/v1/wp/documents", token, fmt.Sprintf(`{"items":[{"id":"page-%d"}]}`, i))
		if status != http.StatusOK {
			t.Fatalf("delete page %d of a full storage: %d %s", i, status, body)
		}
		deleted++
	}
	if again := fill(0); deleted != stored || again < stored*3/4 {
		t.Errorf("after everything was deleted there is room for %d pages, and was for %d", again, stored)
	}
	s.end(t)

	s = serveIn(t, s.data, "--policy", policy, "--max-data", "2MiB")
	if status, body := sent(t, http.MethodPut, s.url+"/v1/wp/documents", token, page(stored+1)); status != http.StatusOK {
		t.Errorf("under a larger bound a page is answered %d %s", status, body)
	}
	s.end(t)
}
