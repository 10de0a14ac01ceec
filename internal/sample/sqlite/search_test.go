package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/internal/sample/terms"
)

func page(id, text string) Document {
	return Document{ID: id, Title: "Page " + id, URL: "https://example.org/" + id, Text: text}
}

func put(t *testing.T, d *DB, workspace string, documents ...Document) {
	t.Helper()
	if _, err := d.PutDocuments(t.Context(), workspace, documents, noon); err != nil {
		t.Fatal(err)
	}
}

// found returns the ids of the documents that a search finds, in order.
func found(t *testing.T, d *DB, workspace, question string) string {
	t.Helper()
	f, err := d.Search(t.Context(), workspace, question, 3)
	if err != nil {
		t.Fatalf("search %q: %v", question, err)
	}
	var ids []string
	for _, doc := range f.Documents {
		ids = append(ids, doc.ID)
	}
	return strings.Join(ids, " ")
}

func (d *DB) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := d.writer.Exec(statement, args...); err != nil {
		t.Fatal(err)
	}
}

// wantSound checks the index against the documents: with FTS5's own check, and by counting the
// frequencies again.
func wantSound(t rapid.TB, d *DB) {
	t.Helper()
	if _, err := d.writer.Exec(`INSERT INTO search (search) VALUES ('integrity-check')`); err != nil {
		t.Fatalf("the index check returns %v", err)
	}
	want, got := map[string]int{}, map[string]int{}
	all, indexed := 0, 0
	rows, err := d.reader.Query(`SELECT w.n, d.title, d.text FROM documents d JOIN search_workspaces w USING (workspace_id)`)
	err = collect(rows, err, func() error {
		var workspace int64
		var title, text string
		err := rows.Scan(&workspace, &title, &text)
		seen := map[string]bool{}
		for term := range terms.Of(title + "\n" + text) {
			seen[prefixOf(workspace)+term.Text] = true
		}
		for term := range seen {
			want[term]++
		}
		all++
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows, err = d.reader.Query(`SELECT workspace, term, documents FROM search_terms`)
	err = collect(rows, err, func() error {
		var workspace int64
		var term string
		var n int
		err := rows.Scan(&workspace, &term, &n)
		got[prefixOf(workspace)+term] = n
		return err
	})
	if err != nil || !maps.Equal(got, want) {
		t.Fatalf("the terms are %v, %v: want %v", got, err, want)
	}
	err = d.reader.QueryRow(`SELECT coalesce(sum(documents), 0), (SELECT count(*) FROM search) FROM search_workspaces`).Scan(&indexed, new(int))
	if err != nil || indexed != all {
		t.Fatalf("%d documents count as indexed, %v: want all %d", indexed, err, all)
	}
}

// After any sequence of puts and deletions, the index has the documents' terms, separately for each
// workspace.
func TestTheIndexFollowsTheDocuments(t *testing.T) {
	vocabulary := strings.Fields("refund shipping ship Häuser 退货政策 возврат كتاب किताबें เงิน a b c the 42")
	d, _ := visited(t, Options{})
	if _, err := d.AddToken(t.Context(), Token{ID: "t", Workspace: "acme"}); err != nil {
		t.Fatal(err)
	}
	every := []string{"a", "b", "c", "d", "e"}
	rapid.Check(t, func(r *rapid.T) {
		for _, workspace := range []string{"demo", "acme"} {
			if _, err := d.DeleteDocuments(context.Background(), workspace, every); err != nil {
				r.Fatal(err)
			}
		}
		id := rapid.SampledFrom(every)
		text := rapid.Map(rapid.SliceOfN(rapid.SampledFrom(vocabulary), 0, 6), func(s []string) string { return strings.Join(s, " ") })
		model := map[string]map[string]string{"demo": {}, "acme": {}}
		for range rapid.IntRange(1, 15).Draw(r, "steps") {
			workspace := rapid.SampledFrom([]string{"demo", "acme"}).Draw(r, "workspace")
			ids := rapid.SliceOfNDistinct(id, 1, 4, rapid.ID).Draw(r, "ids")
			if rapid.Bool().Draw(r, "delete") {
				d.DeleteDocuments(context.Background(), workspace, ids)
				for _, id := range ids {
					delete(model[workspace], id)
				}
				continue
			}
			var documents []Document
			for _, id := range ids {
				model[workspace][id] = text.Draw(r, "text") + " only" + workspace + id + "9"
				documents = append(documents, page(id, model[workspace][id]))
			}
			if _, err := d.PutDocuments(context.Background(), workspace, documents, noon); err != nil {
				r.Fatal(err)
			}
		}
		wantSound(r, d)
		for workspace, documents := range model {
			for _, id := range every {
				for _, asks := range []string{"demo", "acme"} {
					f, err := d.Search(context.Background(), asks, "only"+workspace+id+"9", 3)
					_, there := documents[id]
					if want := there && asks == workspace; err != nil || (len(f.Documents) == 1) != want {
						r.Fatalf("%s asks for document %s of %s and finds %v, %v: want %v", asks, id, workspace, f.Documents, err, want)
					}
				}
			}
		}
	})
}

// blocks returns a value that differs between states of the index.
func blocks(t *testing.T, d *DB) (all string) {
	t.Helper()
	err := d.reader.QueryRow(`SELECT group_concat(id || ':' || hex(block)) FROM search_data`).Scan(&all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestWhatIsRepeatedLeavesTheIndexAlone(t *testing.T) {
	d, _ := visited(t, Options{})
	put(t, d, "demo", page("a", "shipping"), page("b", "refunds"))
	before := blocks(t, d)
	put(t, d, "demo", page("a", "shipping"), page("b", "refunds"))
	moved := page("a", "shipping")
	moved.URL = "https://example.org/elsewhere"
	put(t, d, "demo", moved)
	if _, err := d.DeleteDocuments(t.Context(), "demo", []string{"never"}); err != nil {
		t.Fatal(err)
	}
	if blocks(t, d) != before {
		t.Error("the index was written, though no text is new")
	}
	if f, err := d.Search(t.Context(), "demo", "shipping", 3); err != nil || f.Documents[0].URL != moved.URL {
		t.Errorf("the search finds %v, %v: want the new URL", f, err)
	}
	put(t, d, "demo", page("b", "returns"))
	if blocks(t, d) == before {
		t.Error("the index was not written, though a text is new: this test sees nothing")
	}
}

// Each workspace has its own frequencies: the use of a word in others does not affect its answers.
func TestOtherWorkspacesChangeNoAnswer(t *testing.T) {
	d, _ := visited(t, Options{})
	if _, err := d.AddToken(t.Context(), Token{ID: "t", Workspace: "acme"}); err != nil {
		t.Fatal(err)
	}
	put(t, d, "demo", page("a", "alpha beta"), page("b", "alpha gamma"), page("c", "alpha delta"))
	question := "alpha gamma"
	before, err := d.Search(t.Context(), "demo", question, 3)
	if err != nil || before.Documents[0].ID != "b" {
		t.Fatalf("the search finds %v, %v", before, err)
	}
	var foreign []Document
	for i := range 200 {
		foreign = append(foreign, page(fmt.Sprint(i), "gamma gamma gamma"))
	}
	put(t, d, "acme", foreign...)
	after, err := d.Search(t.Context(), "demo", question, 3)
	if err != nil || !maps.Equal(after.Weights, before.Weights) || fmt.Sprint(after.Documents) != fmt.Sprint(before.Documents) {
		t.Errorf("the search finds %v, %v: want %v as before", after, err, before)
	}
	if got := found(t, d, "acme", "alpha"); got != "" {
		t.Errorf("acme finds %s of demo", got)
	}
}

// If every term is in too many documents for ranking, the search returns the newest documents that
// have all terms, without a scan. With a rare term, that term decides alone.
func TestCommonWordsCostNoMoreThanTheirBudget(t *testing.T) {
	d, _ := visited(t, Options{})
	d.postings = 40
	var all []Document
	for i := range 80 {
		text := "widget gadget"
		switch i {
		case 7:
			text = "widget gadget sprocket"
		case 79:
			text = "widget alone"
		}
		all = append(all, Document{ID: fmt.Sprintf("%02d", i), Title: "T", URL: fmt.Sprintf("https://example.org/%d", i), Text: text})
	}
	put(t, d, "demo", all...)
	for question, want := range map[string]string{
		"widget sprocket":                     "07",
		"widget gadget":                       "78 77 76",
		"widget":                              "79 78 77",
		strings.Repeat("widget gadget ", 500): "78 77 76",
	} {
		if got := found(t, d, "demo", question); got != want {
			t.Errorf("%.20q finds %s, want %s", question, got, want)
		}
	}
	read := func(asked []term) (n int) {
		for _, term := range asked {
			n += term.documents
		}
		return n
	}
	asked := affordable([]term{{"a", 1, 1}, {"b", maxPostings / 2, .5}, {"c", maxPostings / 2, .5}, {"d", 90_000, .1}}, maxPostings)
	if len(asked) != 2 || read(asked) > maxPostings {
		t.Errorf("%v are asked for, want those that fit %d", asked, maxPostings)
	}
	if asked := affordable(make([]term, 100), maxPostings); len(asked) != maxSearched {
		t.Errorf("%d terms are asked for, want %d", len(asked), maxSearched)
	}
}

// old creates a data directory in the state of the first schema, with n documents.
func old(t *testing.T, n int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "rows.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	first, err := schema.ReadFile("schema/0001_first.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		string(first), fmt.Sprintf(`PRAGMA application_id = %d; PRAGMA user_version = 1`, application),
		`INSERT INTO workspaces VALUES ('demo', 0), ('acme', 0)`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		workspace := []string{"demo", "acme"}[i%50/40]
		_, err := db.Exec(`INSERT INTO documents (workspace_id, id, title, url, text, updated_at) VALUES (?, ?, 'T', ?, ?, 0)`,
			workspace, fmt.Sprintf("p%d", i), fmt.Sprintf("https://example.org/%d", i), fmt.Sprintf("about thing%dx", i))
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestAnOlderDatabaseIsIndexedAndMayBeUsedMeanwhile(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	path := old(t, 500)
	d := opened(t, path, Options{})
	if got := found(t, d, "demo", "thing3x"); got != "" {
		t.Errorf("document %s is found before anything was indexed", got)
	}
	put(t, d, "demo", page("new", "brandnew"), page("p3", "about another")) // starts the index
	if n, err := d.DeleteDocuments(t.Context(), "demo", []string{"p4"}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if n, err := d.Pending(t.Context()); err != nil || n != 498 {
		t.Errorf("%d documents are pending, %v: want 498", n, err)
	}
	if err := d.write(t.Context(), func(tx *sql.Tx) error { _, err := indexBatch(t.Context(), tx); return err }); err != nil {
		t.Fatal(err)
	}
	d.Close() // the first process is killed here
	var group sync.WaitGroup
	for range 3 { // three processes go on at once
		group.Go(func() {
			d, err := Open(context.Background(), path, Options{BusyTimeout: time.Minute})
			if err == nil {
				err = errors.Join(d.Index(context.Background()), d.Close())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	d = opened(t, path, Options{})
	if n, err := d.Pending(t.Context()); err != nil || n != 0 {
		t.Errorf("%d documents are pending, %v: want none", n, err)
	}
	wantSound(t, d)
	for question, want := range map[string]string{"brandnew": "new", "thing3x": "", "another": "p3", "thing4x": "", "thing499x": "", "thing20x": "p20"} {
		t.Run(question, func(t *testing.T) {
			if got := found(t, d, "demo", question); got != want {
				t.Errorf("%q finds %q, want %q", question, got, want)
			}
		})
	}
	if got := found(t, d, "acme", "thing499x"); got != "p499" {
		t.Errorf("acme finds %q, want its own p499", got)
	}
}

// An index of other terms gives no wrong answers: it is rejected until it has been rebuilt.
func TestANewCutOfTextIndexesEverythingAnew(t *testing.T) {
	d, _ := visited(t, Options{})
	put(t, d, "demo", page("a", "shipping"), page("b", "refunds"))
	d.exec(t, `UPDATE search_version SET version = 999`)
	if _, err := d.Search(t.Context(), "demo", "shipping", 3); !errors.Is(err, ErrReindexed) {
		t.Errorf("a search returns %v, want ErrReindexed", err)
	}
	if _, err := d.PutDocuments(t.Context(), "demo", []Document{page("c", "x")}, noon); !errors.Is(err, ErrReindexed) {
		t.Errorf("a write returns %v, want ErrReindexed", err)
	}
	if _, err := d.DeleteDocuments(t.Context(), "demo", []string{"a"}); !errors.Is(err, ErrReindexed) {
		t.Errorf("a deletion returns %v, want ErrReindexed", err)
	}
	if n, err := d.Pending(t.Context()); err != nil || n != 2 {
		t.Errorf("%d documents are pending, %v: want both", n, err)
	}
	if err := d.Index(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSound(t, d)
	if got := found(t, d, "demo", "shipping"); got != "a" {
		t.Errorf("the search finds %q, want a", got)
	}
}

// A match in a title counts more than in a text, a rare word more than a common one, and a short
// text more than a long one.
func TestTheBestDocumentComesFirst(t *testing.T) {
	d, _ := visited(t, Options{})
	filler := strings.Repeat("nothing of that kind ", 40)
	title := page("title", filler)
	title.Title = "Refunds"
	put(t, d, "demo", title, page("rare", "shipping zirconium"), page("short", "shipping"), page("long", filler+"shipping refund"), page("no", filler))
	for question, want := range map[string]string{
		"refund": "title long", "shipping zirconium": "rare", "shipping": "short rare long",
	} {
		if got := found(t, d, "demo", question); !strings.HasPrefix(got, want) {
			t.Errorf("%q finds %s, want %s", question, got, want)
		}
	}
}

// Words far inside a long document count too.
func TestALongDocumentIsFoundByItsLastWords(t *testing.T) {
	d, _ := visited(t, Options{})
	for _, filler := range []string{"filler ", "é", "退货"} {
		put(t, d, "demo", page("long", strings.Repeat(filler, 2*maxScanned/len(filler))+" zirconium ring"), page("short", "something else"))
		if got := found(t, d, "demo", "zirconium ring"); got != "long" {
			t.Errorf("after %d of %q the search finds %q, want the long one", maxScanned, filler, got)
		}
		if got := found(t, d, "demo", "ring unknown1x unknown2x unknown3x"); got != "" {
			t.Errorf("one word of four finds %q, want nothing", got)
		}
	}
}

func TestNoTwoSourcesShareAURL(t *testing.T) {
	d, _ := visited(t, Options{})
	a, b := page("a", "shipping"), page("b", "shipping")
	b.URL = a.URL
	put(t, d, "demo", a, b, page("c", "shipping"), page("d", "shipping"), page("e", "shipping"))
	f, err := d.Search(t.Context(), "demo", "shipping", 3)
	var urls []string
	for _, doc := range f.Documents {
		urls = append(urls, doc.URL)
	}
	if slices.Sort(urls); err != nil || len(slices.Compact(urls)) != 3 {
		t.Errorf("the sources are %q, %v: want three different ones", urls, err)
	}
}
