package weir

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	_ "modernc.org/sqlite"
)

// database opens the SQLite file of a data directory directly.
func database(t *testing.T, data string) *sql.DB {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(data, "*.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the data directory holds %d databases (%v), want 1", len(files), err)
	}
	if _, err := os.Stat(files[0]); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+files[0]+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// counted returns the result of a query for one number.
func counted(t *testing.T, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// If a process is killed while it writes, its database is sound and has every
// acknowledged row.
func TestAKilledServerLosesNoAcknowledgedRow(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	plenty := "limiters:\n  - name: plenty\n    routes: [/*]\n    windows: [1000000 per minute by ip]\n"
	if err := os.WriteFile(policy, []byte(plenty), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveWeir(t, "--access-log=off", "--policy", policy)
	visitor := session(t, s.url)

	var mu sync.Mutex
	var acknowledged []string
	enough, failed := make(chan struct{}), make(chan error, 8)
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for {
				id, err := lead(s.url, visitor)
				if err != nil {
					failed <- err // expected, once it is killed
					return
				}
				mu.Lock()
				if acknowledged = append(acknowledged, id); len(acknowledged) == 200 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	select {
	case <-enough:
	case err := <-failed:
		t.Fatalf("a lead before the end: %v", err)
	}
	if code, err := s.signal(syscall.SIGKILL); err != nil || code != -1 {
		t.Fatalf("SIGKILL: status %d, %v", code, err)
	}
	writers.Wait()

	db := database(t, s.data)
	var verdict string
	if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Fatalf("integrity check: %q, %v", verdict, err)
	}
	for _, id := range acknowledged {
		if counted(t, db, "SELECT count(*) FROM leads WHERE id = ?", id) != 1 {
			t.Errorf("lead %s was acknowledged and is gone", id)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	again := serveIn(t, s.data, "--policy", policy)
	if _, err := lead(again.url, visitor); err != nil {
		t.Errorf("after a restart the session's lead: %v", err)
	}
	again.end(t)
}

// lead sends one lead and returns its id.
func lead(url, visitor string) (string, error) {
	r, err := http.NewRequest(http.MethodPost, url+"/api/v1/widget/leads", strings.NewReader(`{"email":"ada@example.com"}`))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+visitor)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	var made struct{ ID string }
	if err := json.Unmarshal(body, &made); err != nil || response.StatusCode != http.StatusCreated {
		return "", fmt.Errorf("status %d: %s", response.StatusCode, body)
	}
	return made.ID, nil
}
