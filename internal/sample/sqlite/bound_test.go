package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// inUse returns how many bytes the database uses.
func inUse(t *testing.T, d *DB) int64 {
	t.Helper()
	var pages, free int64
	if err := d.reader.QueryRow(`SELECT page_count, freelist_count FROM pragma_page_count, pragma_freelist_count`).Scan(&pages, &free); err != nil {
		t.Fatal(err)
	}
	return (pages - free) * pageSize
}

// minSize returns the size of an empty database.
func minSize(t *testing.T) int64 {
	t.Helper()
	d := opened(t, filepath.Join(t.TempDir(), "rows.db"), Options{})
	return inUse(t, d)
}

// documentsShare returns how many bytes everything but the visitors' rows may use.
func documentsShare(d *DB) int64 { return (d.bound.pages - d.bound.visitors) * pageSize }

// pages returns n documents of 20 000 bytes each: common words, some unique words, and one long
// word that is quickly indexed.
func pages(name string, n int) []Document {
	all := make([]Document, n)
	for i := range all {
		var text strings.Builder
		for j := 0; text.Len() < 2_000; j++ {
			fmt.Fprintf(&text, "word%d %s%d%d ", j*j%997, name, i, j/4)
		}
		text.WriteString(strings.Repeat("x", 20_000-text.Len()))
		all[i] = Document{ID: fmt.Sprintf("%s-%d", name, i), Title: "t", URL: "https://example.org", Text: text.String()}
	}
	return all
}

func ids(documents []Document) []string {
	all := make([]string, len(documents))
	for i, d := range documents {
		all[i] = d.ID
	}
	return all
}

// fill puts documents until there is no room for one more, and returns them.
func fill(t *testing.T, d *DB) (stored []Document) {
	t.Helper()
	for i := range 1000 {
		page := pages(fmt.Sprintf("fill%d", i), 1)
		_, err := d.PutDocuments(t.Context(), "demo", page, noon)
		if errors.Is(err, ErrFull) {
			return stored
		}
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, page...)
	}
	t.Fatal("the database never becomes full")
	return nil
}

func TestAFullDatabaseIsNeverLargerThanItsBound(t *testing.T) {
	most := minSize(t) + 512<<10
	d, _ := visited(t, Options{MaxBytes: most})
	stored := fill(t, d)
	if used, share := inUse(t, d), documentsShare(d); used > share || used < share-64<<10 {
		t.Errorf("%d bytes are in use, want at most %d: a document takes 28 KiB", used, share)
	}
	for range 3 { // a request that is far too large leaves nothing behind, in any file
		if _, err := d.PutDocuments(t.Context(), "demo", pages("large", 40), noon); !errors.Is(err, ErrFull) {
			t.Fatalf("40 documents more than there is room for: %v", err)
		}
	}
	if info, err := os.Stat(d.path); err != nil || info.Size() > most {
		t.Errorf("the file has %d bytes, %v: want at most %d", info.Size(), err, most)
	}
	if info, err := os.Stat(d.path + "-wal"); err != nil || info.Size() > 32<<20 {
		t.Errorf("the log has %d bytes, %v: want those of a few transactions", info.Size(), err)
	}
	// what was deleted can be stored again, any number of times, apart from what the index has not
	// merged yet
	for round := range 3 {
		if n, err := d.DeleteDocuments(t.Context(), "demo", ids(stored)); err != nil || n != len(stored) {
			t.Fatalf("round %d deletes %d of %d, %v", round, n, len(stored), err)
		}
		again := fill(t, d)
		if len(again) < len(stored)-4 {
			t.Fatalf("round %d: there is room for %d documents, and was for %d", round, len(again), len(stored))
		}
		stored = again
	}
}

// What a full-text index buffers until the commit counts too.
func TestAnIndexIsHeldToTheBoundToo(t *testing.T) {
	most := minSize(t) + 160<<10
	d, _ := visited(t, Options{MaxBytes: most})
	err := d.write(t.Context(), func(tx *sql.Tx) error {
		if _, err := tx.Exec(`CREATE VIRTUAL TABLE words USING fts5 (text, content = '')`); err != nil {
			return err
		}
		for i := range 8_000 { // less than FTS5 writes before the end by itself
			if _, err := tx.Exec(`INSERT INTO words (text) VALUES (?)`, fmt.Sprintf("%d%d", i*7919, i)); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, ErrFull) {
		t.Errorf("an index beyond the bound is stored: %v, %d bytes are in use of %d", err, inUse(t, d), most)
	}
}

// In a full database everything works that makes room, ends a credential or only reads.
func TestAFullDatabaseCanBeEmptiedAndItsTokensRevoked(t *testing.T) {
	d, s := visited(t, Options{MaxBytes: minSize(t) + 256<<10})
	if _, err := d.AddToken(t.Context(), Token{ID: "old", Workspace: "demo", Created: noon}); err != nil {
		t.Fatal(err)
	}
	stored := fill(t, d)
	leads := 0
	for ; ; leads++ { // into the rest of the last pages
		err := d.AddLead(t.Context(), s, Lead{ID: fmt.Sprint("led_", leads), Email: "ann@example.org", Note: strings.Repeat("x", 300), Created: noon})
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil || leads > 1000 {
			t.Fatalf("%d leads: %v", leads, err)
		}
	}
	if err := d.RevokeToken(t.Context(), "old", noon); err != nil {
		t.Errorf("revoke a token of a full database: %v", err)
	}
	for i := range 60 { // enough for pages of their own
		if _, err := d.AddToken(t.Context(), Token{ID: fmt.Sprint("new", i), Workspace: "acme", Created: noon}); err != nil {
			t.Fatalf("create a token in a full database: %v", err)
		}
	}
	if _, err := d.Session(t.Context(), s.ID); err != nil {
		t.Errorf("a read of a full database returns %v", err)
	}
	if err := d.WithWriteLock(t.Context(), func() error { return nil }); err != nil {
		t.Errorf("the lock between processes needs room: %v", err)
	}
	for i := range stored { // one by one; each may need a page before it frees one
		if _, err := d.DeleteDocuments(t.Context(), "demo", ids(stored[i:i+1])); err != nil {
			t.Fatalf("delete document %d of a full database: %v", i, err)
		}
	}
	if again := fill(t, d); len(again) < len(stored)-1 {
		t.Errorf("after room was made there is room for %d documents, and was for %d", len(again), len(stored))
	}
}

// A database that is larger than a new bound is reported at the start. It can be read and emptied,
// and stores rows again once it is below the bound.
func TestADatabaseLargerThanItsBoundCanOnlyShrink(t *testing.T) {
	d, s := visited(t, Options{})
	documents := pages("old", 40)
	if _, err := d.PutDocuments(t.Context(), "demo", documents, noon); err != nil {
		t.Fatal(err)
	}
	most := minSize(t) + 512<<10
	var told []int64
	small := opened(t, d.path, Options{MaxBytes: most, NearlyFull: func(_ Share, used, _ int64) { told = append(told, used) }})
	if len(told) != 1 || told[0] <= most {
		t.Errorf("Open reports %d bytes in use, want once more than the %d that may be", told, most)
	}
	lead := Lead{ID: "led_1", Email: "x", Created: noon}
	if err := small.AddLead(t.Context(), s, lead); !errors.Is(err, ErrFull) {
		t.Errorf("a write beyond the bound returns %v", err)
	}
	if _, err := small.AddFirstWorkspace(t.Context(), "demo", noon); err != nil {
		t.Errorf("a look for the first workspace returns %v", err)
	}
	if err := d.AddLead(t.Context(), s, lead); err != nil { // another process, without a bound
		t.Errorf("a write of a process without a bound returns %v", err)
	}
	if n, err := small.DeleteDocuments(t.Context(), "demo", ids(documents[:10])); err != nil || n != 10 {
		t.Errorf("a deletion beyond the bound deletes %d of 10, %v", n, err)
	}
	lead.ID = "led_2"
	if err := small.AddLead(t.Context(), s, lead); !errors.Is(err, ErrFull) {
		t.Errorf("a write while still beyond the bound returns %v", err)
	}
	if _, err := small.DeleteDocuments(t.Context(), "demo", ids(documents)); err != nil {
		t.Fatal(err)
	}
	fill(t, small) // the free pages, wherever they are in the file
	if used, share := inUse(t, small), documentsShare(small); used > share || used < share-64<<10 {
		t.Errorf("%d bytes are in use, want at most %d", used, share)
	}
	if len(told) != 1 {
		t.Errorf("the bound was reported %d times", len(told))
	}
}

func TestFourFifthsOfAShareAreReportedOnce(t *testing.T) {
	most := minSize(t)*5/4 + 512<<10 // so that the empty database is not close
	var told []int64
	d, _ := visited(t, Options{MaxBytes: most, NearlyFull: func(share Share, used, most int64) {
		if share != OfDocuments || most >= minSize(t)*5/4+512<<10 {
			t.Errorf("%d of %d bytes of the share of %s are reported", used, most, share)
		}
		told = append(told, used)
	}})
	if len(told) != 0 {
		t.Fatalf("an empty database is reported: %v", told)
	}
	for range 2 {
		if _, err := d.DeleteDocuments(t.Context(), "demo", ids(fill(t, d))); err != nil {
			t.Fatal(err)
		}
	}
	if share := documentsShare(d); len(told) != 1 || told[0] <= share/5*4-8*pageSize || told[0] > share/5*4+64<<10 {
		t.Errorf("%v are reported, want once, at four fifths of %d", told, share)
	}
}

func TestABoundBelowTheSchemaIsAnErrorOfOpen(t *testing.T) {
	least := minSize(t)
	path := filepath.Join(t.TempDir(), "rows.db")
	for _, most := range []int64{1, pageSize, least / 2, least} {
		d, err := Open(context.Background(), path, Options{MaxBytes: most})
		if err == nil {
			d.Close()
		}
		if !errors.Is(err, ErrSmall) || !strings.Contains(err.Error(), path) {
			t.Errorf("Open with a bound of %d returns %v, want ErrSmall and the file", most, err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("the directory has %v, %v: want no file", left, err)
	}
	d := opened(t, path, Options{MaxBytes: least + 16*pageSize})
	if _, err := d.AddFirstWorkspace(t.Context(), "demo", noon); err != nil {
		t.Error(err)
	}
	// also with an existing database
	if _, err := Open(context.Background(), path, Options{MaxBytes: least / 2}); !errors.Is(err, ErrSmall) {
		t.Errorf("Open of an old database with a bound of %d returns %v", least/2, err)
	}
}
