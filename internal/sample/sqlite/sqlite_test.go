package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func opened(t *testing.T, path string, o Options) *DB {
	t.Helper()
	d, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// visited returns a database with a workspace and a session.
func visited(t *testing.T, o Options) (*DB, Session) {
	t.Helper()
	d := opened(t, filepath.Join(t.TempDir(), "rows.db"), o)
	if _, err := d.AddFirstWorkspace(t.Context(), "demo", noon); err != nil {
		t.Fatal(err)
	}
	s := Session{ID: "ses_1", Workspace: "demo", Created: noon, Expires: noon.Add(time.Hour)}
	if err := d.StartSession(t.Context(), s, "cnv_1"); err != nil {
		t.Fatal(err)
	}
	return d, s
}

func TestOnlyTheOwnerCanReadAnyFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a dir ?with#odd%20name&x=1")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "rows.db")
	d := opened(t, path, Options{})
	// as a careless copy leaves it
	if err := errors.Join(d.Close(), os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
	d = opened(t, path, Options{})
	if _, err := d.AddFirstWorkspace(t.Context(), "demo", noon); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Fatalf("the directory holds %v, %v: want the database, its log and its index", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v: want 0600", f.Name(), info.Mode(), err)
		}
	}
}

func TestOpenSaysWhatStandsInTheWay(t *testing.T) {
	run := func(statements string) func(path string) error {
		return func(path string) error {
			db, err := sql.Open("sqlite", path)
			if err != nil {
				return err
			}
			defer db.Close()
			_, err = db.Exec(statements)
			return err
		}
	}
	for name, c := range map[string]struct {
		prepare func(path string) error
		want    error
	}{
		"another program's database": {run(`CREATE TABLE recipes (id INTEGER)`), ErrForeign},
		"a newer weir's":             {run(fmt.Sprintf(`PRAGMA application_id = %d; PRAGMA user_version = 999`, application)), ErrNewer},
		"no database at all": {func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("hello, world\n", 1000)), 0o600)
		}, ErrCorrupt},
		"an empty file": {func(path string) error {
			return os.WriteFile(path, nil, 0o600)
		}, ErrCorrupt},
		"the log of one that was removed": {func(path string) error {
			return os.WriteFile(path+"-wal", []byte("x"), 0o600)
		}, ErrCorrupt},
		"a directory in its place": {func(path string) error { return os.Mkdir(path, 0o700) }, nil},
		"a damaged page": {func(path string) error {
			d, err := Open(context.Background(), path, Options{})
			if err != nil {
				return err
			}
			if _, err := d.AddFirstWorkspace(context.Background(), "demo", noon); err != nil {
				return err
			}
			if err := d.Close(); err != nil { // moves the log into the database
				return err
			}
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte(strings.Repeat("\xff", 4096)), 4096)
			return errors.Join(err, f.Close())
		}, ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "rows.db")
			if err := c.prepare(path); err != nil {
				t.Fatal(err)
			}
			d, err := Open(t.Context(), path, Options{})
			if err == nil {
				d.Close()
			}
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("Open returns %v, want %v", err, c.want)
			}
			if err != nil && !strings.Contains(err.Error(), path) {
				t.Errorf("the error %q does not name the file", err)
			}
		})
	}
}

func TestManyMayOpenANewDatabaseAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.db")
	var group sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 8 {
		group.Go(func() {
			d, err := Open(context.Background(), path, Options{BusyTimeout: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			defer d.Close()
			first, err := d.AddFirstWorkspace(context.Background(), "demo", noon)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if first {
				made++
			}
		})
	}
	group.Wait()
	if made != 1 {
		t.Errorf("%d of 8 made the first workspace, want exactly 1", made)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, %v: want the database alone", left, err)
	}
}

func TestAWriteWaitsForOthersOnlySoLong(t *testing.T) {
	d, s := visited(t, Options{BusyTimeout: 20 * time.Millisecond})
	other := opened(t, d.path, Options{})
	lead := Lead{ID: "led_1", Email: "ann@example.org", Created: noon}
	err := other.WithWriteLock(t.Context(), func() error { // as another process would hold it
		if err := d.AddLead(t.Context(), s, lead); !errors.Is(err, ErrBusy) {
			t.Errorf("a write while another process writes returns %v, want ErrBusy", err)
		}
		if _, err := d.Session(t.Context(), s.ID); err != nil {
			t.Errorf("a read while another process writes returns %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = d.WithWriteLock(t.Context(), func() error { // another goroutine of this process
		err := d.AddLead(t.Context(), s, lead)
		// longer, because its writers are in a queue that moves
		if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "300ms") {
			t.Errorf("a write while this process writes returns %v, want ErrBusy after 300ms", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.AddLead(t.Context(), s, lead); err != nil {
		t.Errorf("a write once the lock is free returns %v", err)
	}
}

func TestACancelledWriteLeavesNothing(t *testing.T) {
	d, s := visited(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	err := d.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO leads (id, workspace_id, email, created_at) VALUES ('led_1', ?, 'x', 0)`, s.Workspace)
		cancel()
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the write returns %v, want that it was cancelled", err)
	}
	var leads int
	if err := d.reader.QueryRow(`SELECT count(*) FROM leads`).Scan(&leads); err != nil || leads != 0 {
		t.Errorf("there are %d leads, %v: want none", leads, err)
	}
	if err := d.AddLead(t.Context(), s, Lead{ID: "led_2", Email: "x", Created: noon}); err != nil {
		t.Errorf("the next write returns %v", err)
	}
}

func TestAFullDatabaseKeepsWhatItHasAndTakesNothingByHalves(t *testing.T) {
	d, s := visited(t, Options{MaxBytes: 500 << 10})
	page := make([]Document, 20)
	stored := 0
	for {
		for i := range page {
			page[i] = Document{ID: fmt.Sprintf("%d-%d", stored, i), Title: "t", URL: "https://example.org", Text: strings.Repeat("x", 2000)}
		}
		_, err := d.PutDocuments(t.Context(), "demo", page, noon)
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if stored += len(page); stored > 1000 {
			t.Fatal("the database takes more than its bound")
		}
	}
	if c, err := d.Counts(t.Context(), "demo"); err != nil || c.Documents != int64(stored) || stored == 0 {
		t.Errorf("there are %d documents, %v: want the %d of the pages that fitted", c.Documents, err, stored)
	}
	if _, err := d.Session(t.Context(), s.ID); err != nil {
		t.Errorf("a read of a full database returns %v", err)
	}
	ids := make([]string, stored)
	for i := range ids {
		ids[i] = fmt.Sprintf("%d-%d", i/20*20, i%20)
	}
	if n, err := d.DeleteDocuments(t.Context(), "demo", ids); err != nil || n != stored {
		t.Fatalf("deleting from a full database deletes %d of %d, %v", n, stored, err)
	}
	if _, err := d.PutDocuments(t.Context(), "demo", page, noon); err != nil {
		t.Errorf("a write after room was made returns %v", err)
	}
}

func TestTheFeedHasNoGapUnderConcurrency(t *testing.T) {
	d, s := visited(t, Options{BusyTimeout: time.Minute})
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for range 10 {
				if _, _, err := d.Report(context.Background(), s.ID, "", Event{Source: FromVisitor, Type: "x", Created: noon}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	_, events, more, err := d.Events(t.Context(), s.ID, "", 0, 1000)
	if err != nil || more || len(events) != 161 { // including the initial one
		t.Fatalf("the feed has %d events, %v, %v: want 161", len(events), more, err)
	}
	for i, e := range events {
		if e.N != int64(i+1) {
			t.Fatalf("event %d has number %d", i, e.N)
		}
	}
}

func TestAPageOfDocumentsEndsEarlyWhereItsTextsAreLong(t *testing.T) {
	d, _ := visited(t, Options{})
	var all []Document
	for i := range 10 {
		all = append(all, Document{ID: fmt.Sprintf("d%d", i), Title: "t", URL: "https://example.org", Text: strings.Repeat("x", 100)})
	}
	if _, err := d.PutDocuments(t.Context(), "demo", all, noon); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for after, more := "", true; more; {
		var page []Document
		var err error
		page, more, err = d.Documents(t.Context(), "demo", after, 100, 250)
		if err != nil || len(page) == 0 || len(page) > 3 {
			t.Fatalf("a page has %d documents, %v: want 1 to 3", len(page), err)
		}
		for _, doc := range page {
			ids = append(ids, doc.ID)
		}
		after = page[len(page)-1].ID
	}
	if got := strings.Join(ids, " "); got != "d0 d1 d2 d3 d4 d5 d6 d7 d8 d9" {
		t.Errorf("the pages hold %s: want each document once, in order", got)
	}
}
