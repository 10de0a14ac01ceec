package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// origin returns the hashes of an address and of its network; without a network if network is 0.
func origin(address, network byte) Origin {
	o := Origin{Address: bytes.Repeat([]byte{address}, 16)}
	if network > 0 {
		o.Network = bytes.Repeat([]byte{network}, 16)
	}
	return o
}

// started adds a session with an origin, and returns it.
func started(t *testing.T, d *DB, workspace string, at time.Time, o Origin) Session {
	t.Helper()
	s := Session{ID: "ses_" + fmt.Sprint(rand.Uint64()), Workspace: workspace, Created: at, Expires: at.Add(24 * time.Hour), Origin: o}
	if err := d.StartSession(t.Context(), s, "cnv_"+s.ID); err != nil {
		t.Fatal(err)
	}
	return s
}

// books are the accounts of a database.
type books struct {
	// charges; orphans are the leads without a session
	workspaces, origins, sessions, leads, orphans int64
	others                                        int64 // pages
}

// wantBalance checks that each account is the sum of its parts, and that the pages of the visitors'
// tables, read one by one, are exactly those that are in use for them.
func wantBalance(t *testing.T, d *DB) (b books) {
	t.Helper()
	err := d.reader.QueryRow(`
		SELECT (SELECT coalesce(sum(bytes), 0) FROM workspaces), (SELECT coalesce(sum(bytes), 0) FROM origins WHERE network IS NULL),
			(SELECT coalesce(sum(bytes + lead_bytes), 0) FROM sessions), (SELECT coalesce(sum(bytes), 0) FROM leads),
			(SELECT coalesce(sum(bytes), 0) FROM leads WHERE session_id IS NULL), other_pages
		FROM storage`).Scan(&b.workspaces, &b.origins, &b.sessions, &b.leads, &b.orphans, &b.others)
	if err != nil {
		t.Fatal(err)
	}
	if b.workspaces != b.sessions+b.orphans {
		t.Errorf("the workspaces are charged %d, their sessions and leads %d", b.workspaces, b.sessions+b.orphans)
	}
	if n := count(t, d, `sessions s WHERE lead_bytes <> (SELECT coalesce(sum(bytes), 0) FROM leads WHERE session_id = s.id)`); n != 0 {
		t.Errorf("%d sessions are charged other leads than theirs", n)
	}
	if n := count(t, d, `workspaces w WHERE bytes <>
		(SELECT coalesce(sum(bytes), 0) FROM sessions WHERE workspace_id = w.id) + (SELECT coalesce(sum(bytes), 0) FROM leads WHERE workspace_id = w.id)`); n != 0 {
		t.Errorf("%d workspaces are charged what is not theirs", n)
	}
	if n := count(t, d, `origins o WHERE bytes <= 0 OR bytes <>
		(SELECT coalesce(sum(s.bytes), 0) FROM sessions s JOIN origins a ON a.n = s.origin WHERE o.n IN (a.n, a.network)) +
		(SELECT coalesce(sum(l.bytes), 0) FROM leads l JOIN origins a ON a.n = l.origin WHERE o.n IN (a.n, a.network))`); n != 0 {
		t.Errorf("%d origins are charged what is not theirs, or nothing", n)
	}
	visitors := count(t, d, `dbstat WHERE name IN (SELECT name FROM sqlite_schema
		WHERE tbl_name IN ('origins', 'sessions', 'conversations', 'messages', 'events', 'leads', 'ratings', 'redemptions'))`)
	empty := count(t, d, `sqlite_schema
		WHERE tbl_name IN ('origins', 'sessions', 'conversations', 'messages', 'events', 'leads', 'ratings', 'redemptions') AND rootpage > 0`)
	if used := inUse(t, d) / pageSize; used-b.others != visitors-empty {
		t.Errorf("%d pages are in use, %d of them others', which leaves %d: the visitors' tables have %d beyond one each", used, b.others, used-b.others, visitors-empty)
	}
	return b
}

// After any concurrent requests of visitors and workspaces in two processes, the accounts are
// correct, and they are zero when the last row is deleted.
func TestTheAccountsOfTheStorageAreExact(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	d, _ := visited(t, Options{BusyTimeout: time.Minute})
	if _, err := d.AddToken(t.Context(), Token{ID: "tok", Workspace: "shop", Created: noon}); err != nil {
		t.Fatal(err)
	}
	other := opened(t, d.path, Options{BusyTimeout: time.Minute})
	text := func() string { return strings.Repeat("word ", rand.IntN(1600)+1) }
	var group sync.WaitGroup
	for i := range 6 {
		at, d := noon.Add(time.Duration(i)*time.Minute), []*DB{d, other}[i%2]
		s := started(t, d, []string{"demo", "shop"}[i%2], at, origin(byte(i/2+1), byte(i%3)*100))
		group.Go(func() {
			for n := range 30 {
				id := fmt.Sprint(s.ID, n)
				_, err := d.AddMessages(context.Background(), s.ID, "", Message{ID: "msg_" + id, Author: Visitor, Text: text(), Created: at},
					Message{ID: "ans_" + id, Author: Assistant, Text: text(), Created: at})
				_, _, err2 := d.Report(context.Background(), s.ID, "", Event{Source: FromVisitor, Type: "x", Data: []byte(`"` + text()[:4] + `"`), Created: at})
				_, err3 := d.PutDocuments(context.Background(), s.Workspace, []Document{{ID: fmt.Sprint("doc", n%7), Title: "t", URL: "https://example.com", Text: text()}}, at)
				_, err4 := d.DeleteDocuments(context.Background(), s.Workspace, []string{fmt.Sprint("doc", n%5)})
				err = errors.Join(err, err2, err3, err4,
					d.Rate(context.Background(), s.ID, "", Rating{ID: "rat_" + id, Score: 5, Comment: text()[:5], Created: at}),
					d.AddLead(context.Background(), s, Lead{ID: "led_" + id, Email: "ada@example.com", Note: text(), Created: at.Add(time.Duration(n) * time.Minute)}),
					d.StartConversation(context.Background(), s.ID, "cnv_"+id, at))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if b := wantBalance(t, d); b.leads == 0 || b.sessions <= b.leads {
		t.Errorf("the accounts are %+v: want charges for leads and for more", b)
	}
	now := noon.Add(30 * 24 * time.Hour)
	// first sessions that are outlived by some of their leads, then only leads
	for _, after := range []time.Duration{2, 20, 34} {
		if _, err := d.Sweep(t.Context(), noon.Add(after*time.Minute), now); err != nil {
			t.Fatal(err)
		}
		if b := wantBalance(t, d); after == 20 && (b.orphans == 0 || b.sessions != 0) {
			t.Errorf("the accounts are %+v: want leads alone", b)
		}
	}
	if b := wantBalance(t, d); b != (books{others: b.others}) || count(t, d, "origins") != 0 {
		t.Errorf("when everything has gone the accounts are %+v, of %d origins", b, count(t, d, "origins"))
	}
	d.Close()
	wantBalance(t, opened(t, d.path, Options{}))
}

// A transaction that is refused charges nothing.
func TestWhatIsNotStoredIsNotCharged(t *testing.T) {
	d, s := visited(t, Options{MaxBytes: minSize(t) + 2<<20})
	before := wantBalance(t, d)
	long := Message{ID: "msg_1", Author: Visitor, Text: strings.Repeat("x", 1<<20), Created: noon}
	if _, err := d.AddMessages(t.Context(), s.ID, "", long); !errors.Is(err, ErrFull) {
		t.Fatalf("a message of 1 MiB: %v", err)
	}
	if err := d.AddLead(t.Context(), Session{ID: "ses_none", Workspace: "demo"}, Lead{ID: "led_1", Email: "x", Created: noon}); err == nil {
		t.Error("a lead of a session that is not there is stored")
	}
	if after := wantBalance(t, d); after != before {
		t.Errorf("the accounts went from %+v to %+v", before, after)
	}
}

// A row is charged at least the space that it uses, and not much more, so a share of bytes is also
// a share of pages.
func TestAChargeCoversThePagesThatARowTakes(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	const rows = 100
	// as long as real ones
	id := func(kind string, i int) string { return fmt.Sprintf("%s_%08x%018x", kind, rand.Uint32(), i) }
	for kind, store := range map[string]func(d *DB, s Session, i int, text string) error{
		"message": func(d *DB, s Session, i int, text string) error {
			_, err := d.AddMessages(t.Context(), s.ID, "", Message{ID: id("msg", i), Author: Visitor, Text: text, Created: noon})
			return err
		},
		"event": func(d *DB, s Session, i int, text string) error {
			_, _, err := d.Report(t.Context(), s.ID, "", Event{Source: FromVisitor, Type: "x", Data: []byte(`"` + text + `"`), Created: noon})
			return err
		},
		"rating": func(d *DB, s Session, i int, text string) error {
			return d.Rate(t.Context(), s.ID, "", Rating{ID: id("rat", i), Score: 1, Comment: text, Created: noon})
		},
		"lead": func(d *DB, s Session, i int, text string) error {
			return d.AddLead(t.Context(), s, Lead{ID: id("led", i), Email: "ada@example.com", Note: text, Created: noon})
		},
		"conversation": func(d *DB, s Session, i int, _ string) error {
			return d.StartConversation(t.Context(), s.ID, id("cnv", i), noon)
		},
		"session": func(d *DB, _ Session, i int, _ string) error {
			o := Origin{Address: []byte(id("adr", i)[4:20]), Network: []byte(id("net", i)[4:20])}
			return d.StartSession(t.Context(), Session{ID: id("ses", i), Workspace: "demo", Created: noon, Expires: noon, Origin: o}, id("cnv", i))
		},
	} {
		t.Run(kind, func(t *testing.T) {
			lengths := []int{1, 400, 860, 4000}
			if kind == "conversation" || kind == "session" {
				lengths = lengths[:1] // their rows are all alike
			}
			for _, length := range lengths {
				d, _ := visited(t, Options{})
				var all []Session
				for range 10 {
					all = append(all, started(t, d, "demo", noon, origin(1, 0)))
				}
				account := func() (charged, used int64) {
					b := wantBalance(t, d)
					return b.workspaces, inUse(t, d) - b.others*pageSize
				}
				charged, used := account()
				for i := range rows {
					if err := store(d, all[rand.IntN(len(all))], i, strings.Repeat("x", length)); err != nil {
						t.Fatal(err)
					}
				}
				charged2, used2 := account()
				if charged, used := charged2-charged, used2-used; charged < used || charged > 6*used+4*pageSize {
					t.Errorf("%d rows of kind %s with %d bytes are charged %d and take %d", rows, kind, length, charged, used)
				}
				d.Close()
			}
		})
	}
}

// The rows of a data directory from before shares existed are charged.
func TestAnOlderDatabasesRowsAreCharged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	files, err := schema.ReadDir("schema")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files[:4] {
		text, err := schema.ReadFile("schema/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(string(text)); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("x", 3000)
	if _, err := db.Exec(fmt.Sprintf(`PRAGMA application_id = %d; PRAGMA user_version = 4;`, application) + `
		CREATE TEMP VIEW series AS WITH RECURSIVE s (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM s WHERE value < 300) SELECT value FROM s;
		INSERT INTO workspaces VALUES ('demo', 1), ('shop', 1);
		INSERT INTO sessions VALUES ('ses_1', 'demo', 1, 2), ('ses_2', 'shop', 1, 2);
		INSERT INTO conversations (n, id, session_id, created_at) VALUES (1, 'cnv_1', 'ses_1', 1), (2, 'cnv_2', 'ses_2', 1);
		INSERT INTO messages (conversation, n, id, author, text, created_at)
			SELECT 1 + value % 2, value, 'msg_' || value, 'visitor', '` + long + `', 1 FROM series WHERE value <= 300;
		INSERT INTO events SELECT 1, value, 'visitor', 'x', '"y"', 1 FROM series WHERE value <= 100;
		INSERT INTO ratings VALUES ('rat_1', 1, 5, 'fine', 1);
		INSERT INTO leads SELECT 'led_' || value, 'demo', CASE WHEN value < 5 THEN 'ses_1' END, 'ada@example.com', NULL, NULL, '` + long + `', 1 FROM series WHERE value <= 10;
		INSERT INTO redemptions VALUES ('ses_1', 'C', 1);`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	d := opened(t, path, Options{})
	b := wantBalance(t, d)
	if b.sessions < 300*3000 || b.sessions > 2*300*4096 || b.orphans < 6*3000 {
		t.Errorf("the accounts are %+v: want what 300 messages and 6 leads of 3,000 bytes take", b)
	}
	if _, err := d.Sweep(t.Context(), noon, noon); err != nil {
		t.Fatal(err)
	}
	if b := wantBalance(t, d); b.workspaces != 0 {
		t.Errorf("when everything has gone the accounts are %+v", b)
	}
}

// BenchmarkAMessageWithItsAnswer stores two messages and their events, in one transaction.
func BenchmarkAMessageWithItsAnswer(b *testing.B) {
	d, err := Open(b.Context(), filepath.Join(b.TempDir(), "rows.db"), Options{MaxBytes: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	s := Session{ID: "ses_1", Workspace: "demo", Created: noon, Expires: noon, Origin: origin(1, 2)}
	_, err = d.AddFirstWorkspace(b.Context(), "demo", noon)
	if err = errors.Join(err, d.StartSession(b.Context(), s, "cnv_1")); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		_, err := d.AddMessages(b.Context(), s.ID, "",
			Message{ID: fmt.Sprint("msg_", i), Author: Visitor, Text: "When are you open?", Created: noon},
			Message{ID: fmt.Sprint("ans_", i), Author: Assistant, Text: "From nine to five.", Created: noon})
		if err != nil {
			b.Fatal(err)
		}
	}
}
