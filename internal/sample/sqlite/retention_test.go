package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// lived adds a session with every kind of activity, n times, all at one instant.
func lived(t *testing.T, d *DB, id string, n int, at time.Time) Session {
	t.Helper()
	s := Session{ID: id, Workspace: "demo", Created: at, Expires: at.Add(24 * time.Hour)}
	if err := d.StartSession(t.Context(), s, "cnv_"+id); err != nil {
		t.Fatal(err)
	}
	if _, err := d.PutCoupons(t.Context(), "demo", []Coupon{{Code: "C", Percent: 5, MaxUses: 1000}}, at); err != nil {
		t.Fatal(err)
	}
	if _, err := d.UseCoupon(t.Context(), s, "C", at, func(Coupon) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		_, err := d.AddMessages(t.Context(), s.ID, "", Message{ID: fmt.Sprint("msg_", id, i), Author: Visitor, Text: "x", Created: at},
			Message{ID: fmt.Sprint("ans_", id, i), Author: Assistant, Text: "x", Created: at})
		err = errors.Join(err, d.SetHelpful(t.Context(), s.ID, fmt.Sprint("ans_", id, i), true, at),
			d.Rate(t.Context(), s.ID, "", Rating{ID: fmt.Sprint("rat_", id, i), Score: 5, Created: at}),
			d.AddLead(t.Context(), s, Lead{ID: fmt.Sprint("led_", id, i), Email: "x", Created: at}),
			d.StartConversation(t.Context(), s.ID, fmt.Sprint("cnv_", id, i), at))
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// crowd adds n conversations to the session, and n messages to the newest: more than one
// transaction of a sweep deletes. It uses two transactions, so that the test is quick.
func crowd(t *testing.T, d *DB, s Session, n int) {
	t.Helper()
	err := d.visit(t.Context(), s.ID, func(v *visit) error {
		for i := range n {
			if err := d.start(t.Context(), v, s.ID, fmt.Sprint("cnv_crowd_", s.ID, i), s.Created); err != nil {
				return err
			}
		}
		return nil
	})
	messages := make([]Message, n)
	for i := range messages {
		messages[i] = Message{ID: fmt.Sprint("msg_crowd_", s.ID, i), Author: Visitor, Text: "x", Created: s.Created}
	}
	if err == nil {
		_, err = d.AddMessages(t.Context(), s.ID, "", messages...)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// count counts rows.
func count(t *testing.T, d *DB, rows string) (n int64) {
	t.Helper()
	if err := d.reader.QueryRow(`SELECT count(*) FROM ` + rows).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

var ofSessions = []string{"sessions", "conversations", "messages", "events", "ratings", "redemptions", "leads"}

// A sweep deletes what was created at the instant or earlier, with everything that belongs to it;
// everything else stays.
func TestASweepTakesWhatIsOldEnoughAndNothingElse(t *testing.T) {
	d, first := visited(t, Options{}) // of noon, without activity
	lived(t, d, "ses_old", 3, noon)
	lived(t, d, "ses_new", 2, noon.Add(time.Millisecond))
	if _, err := d.PutDocuments(t.Context(), "demo", pages("p", 2), noon.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.AddToken(t.Context(), Token{ID: "tok", Workspace: "demo", Created: noon.Add(-time.Hour)}); err != nil {
		t.Fatal(err)
	}
	now := noon.Add(30 * 24 * time.Hour)
	if s, err := d.Sweep(t.Context(), noon.Add(-time.Millisecond), now); err != nil || s != (Swept{}) {
		t.Errorf("a millisecond early a sweep deletes %+v, %v", s, err)
	}
	s, err := d.Sweep(t.Context(), noon, now)
	if want := (Swept{Sessions: 2, Conversations: 5, Messages: 6, Leads: 3}); err != nil || s != want {
		t.Errorf("a sweep deletes %+v, %v: want %+v", s, err, want)
	}
	// a feed has 3 initial events, and for 2 rounds 2 messages, a feedback and a rating each
	for i, want := range []int64{1, 3, 4, 11, 2, 1, 2} {
		if n := count(t, d, ofSessions[i]); n != want {
			t.Errorf("%d %s are left, want the new session's %d", n, ofSessions[i], want)
		}
	}
	if _, err := d.Session(t.Context(), first.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("the old session is there: %v", err)
	}
	c, _, err := d.Coupons(t.Context(), "demo", "", 10)
	if err != nil || len(c) != 1 || c[0].Uses != 2 {
		t.Errorf("the coupons are %+v, %v: want one that two sessions have used", c, err)
	}
	if n, err := d.Counts(t.Context(), "demo"); err != nil || n.Documents != 2 || count(t, d, "tokens") != 1 || count(t, d, "workspaces") != 1 {
		t.Errorf("a sweep took documents, tokens or workspaces: %+v, %v", n, err)
	}
	if n := count(t, d, "pragma_foreign_key_check"); n != 0 {
		t.Errorf("%d rows point to rows that are gone", n)
	}
}

// A session whose token is valid is kept, however old it is.
func TestASweepLeavesASessionThatLives(t *testing.T) {
	d, s := visited(t, Options{}) // until one o'clock
	last := s.Expires.Add(-time.Millisecond)
	ended := Session{ID: "ses_ended", Workspace: "demo", Created: noon, Expires: last}
	if err := d.StartSession(t.Context(), ended, "cnv_ended"); err != nil {
		t.Fatal(err)
	}
	if swept, err := d.Sweep(t.Context(), last, last); err != nil || swept != (Swept{Sessions: 1, Conversations: 1}) {
		t.Errorf("before its expiry a sweep deletes %+v, %v: want the other session alone", swept, err)
	}
	if swept, err := d.Sweep(t.Context(), s.Expires, s.Expires); err != nil || swept.Sessions != 1 {
		t.Errorf("at its expiry a sweep deletes %d sessions, %v", swept.Sessions, err)
	}
}

// A lead has its own retention, and a lead of a session's last hours outlives the session.
func TestALeadOutlivesItsSession(t *testing.T) {
	d, s := visited(t, Options{})
	for i := range 3 {
		if err := d.AddLead(t.Context(), s, Lead{ID: fmt.Sprint("led_", i), Email: "x", Created: noon.Add(time.Duration(i) * time.Minute)}); err != nil {
			t.Fatal(err)
		}
	}
	now := noon.Add(30 * 24 * time.Hour)
	for i, want := range []int64{2, 1, 0} {
		if _, err := d.Sweep(t.Context(), noon.Add(time.Duration(i)*time.Minute), now); err != nil {
			t.Fatal(err)
		}
		if n := count(t, d, "leads WHERE session_id IS NULL"); n != want || count(t, d, "leads") != want {
			t.Errorf("%d leads are left after minute %d, want %d", n, i, want)
		}
	}
}

// There are more rows than one transaction deletes, two processes that sweep, and a third that
// writes and never waits long. Every old row is deleted once.
func TestManySweepAtOnceWhileOthersWrite(t *testing.T) {
	d, _ := visited(t, Options{})
	const sessions = 2
	for i := range sessions {
		crowd(t, d, lived(t, d, fmt.Sprint("ses_old", i), 2, noon), sweepRows)
	}
	other := opened(t, d.path, Options{})
	third := opened(t, d.path, Options{BusyTimeout: 10 * time.Second})
	now := noon.Add(30 * 24 * time.Hour)
	live := Session{ID: "ses_live", Workspace: "demo", Created: now, Expires: now.Add(time.Hour)}
	if err := third.StartSession(t.Context(), live, "cnv_live"); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var swept [2]Swept
	for i, d := range []*DB{d, other} {
		group.Go(func() {
			var err error
			if swept[i], err = d.Sweep(context.Background(), noon, now); err != nil {
				t.Error(err)
			}
		})
	}
	group.Go(func() {
		for range 20 {
			if _, _, err := third.Report(context.Background(), live.ID, "", Event{Source: FromVisitor, Type: "x", Created: now}); err != nil {
				t.Error(err)
			}
		}
	})
	group.Wait()
	if n := swept[0].Sessions + swept[1].Sessions; n != sessions+1 {
		t.Errorf("the two deleted %d sessions, want %d", n, sessions+1)
	}
	for i, want := range []int64{1, 1, 0, 21, 0, 0, 0} {
		if n := count(t, d, ofSessions[i]); n != want {
			t.Errorf("%d %s are left, want %d", n, ofSessions[i], want)
		}
	}
}

// A transaction deletes a bounded number of rows, so that others do not wait long.
func TestASweepIsDoneInSmallTransactions(t *testing.T) {
	d, _ := visited(t, Options{})
	crowd(t, d, lived(t, d, "ses_old", 2, noon), sweepRows+1)
	other := opened(t, d.path, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	now := noon.Add(30 * 24 * time.Hour)
	for _, sweep := range sweeps {
		for more := true; more; {
			before := int64(0)
			for _, table := range ofSessions {
				before += count(t, other, table)
			}
			n, err := d.sweepSome(ctx, sweep.statement, noon, now)
			if err != nil {
				t.Fatal(err)
			}
			after := int64(0)
			for _, table := range ofSessions {
				after += count(t, other, table)
			}
			if n > sweepRows || before-after > sweepRows {
				t.Errorf("one transaction deletes %d rows, and %d with those that belong to them: want at most %d", n, before-after, sweepRows)
			}
			more = n == sweepRows
		}
	}
	if n := count(t, d, "sessions"); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// An interrupted sweep reports what it has deleted; the next one continues.
func TestACancelledSweepIsTakenUpAgain(t *testing.T) {
	d, _ := visited(t, Options{})
	lived(t, d, "ses_old", 2, noon)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	now := noon.Add(30 * 24 * time.Hour)
	if s, err := d.Sweep(ctx, noon, now); !errors.Is(err, context.Canceled) || s != (Swept{}) {
		t.Errorf("a sweep that may not begin deletes %+v, %v", s, err)
	}
	if s, err := d.Sweep(t.Context(), noon, now); err != nil || s.Sessions != 2 {
		t.Errorf("the next sweep deletes %+v, %v", s, err)
	}
}

// Deletion works in a full database.
func TestAFullDatabaseCanBeSwept(t *testing.T) {
	d, _ := visited(t, Options{MaxBytes: minSize(t) + 256<<10})
	lived(t, d, "ses_old", 3, noon)
	fill(t, d)
	for i := 0; ; i++ {
		late := Session{ID: fmt.Sprint("ses_late", i), Workspace: "demo", Created: noon.Add(time.Hour), Expires: noon.Add(time.Hour)}
		if err := d.StartSession(t.Context(), late, "cnv_"+late.ID); errors.Is(err, ErrFull) {
			break
		} else if err != nil || i > 10_000 {
			t.Fatalf("session %d: %v", i, err)
		}
	}
	if s, err := d.Sweep(t.Context(), noon, noon.Add(30*24*time.Hour)); err != nil || s.Sessions != 2 {
		t.Fatalf("a sweep of a full database deletes %+v, %v", s, err)
	}
	if err := d.StartSession(t.Context(), Session{ID: "ses_after", Workspace: "demo", Created: noon, Expires: noon}, "cnv_after"); err != nil {
		t.Errorf("a session after the sweep: %v", err)
	}
}
