package sqlite

import (
	"context"
	"database/sql"
	"time"
)

// Swept says what Sweep deleted.
type Swept struct {
	Sessions, Conversations, Messages, Leads int64
}

const (
	sweptRows     = 500                   // of one transaction: the longest that another writer waits for it
	sweptSessions = 100                   // that are emptied before any of them is deleted
	breath        = 20 * time.Millisecond // between two transactions: other processes, which only try now and then, have a turn
)

// aged are some sessions that are to go: ?1 is the latest instant they were made at, ?2 is now, ?3 how many rows.
const aged = `WITH aged AS (
	SELECT id FROM sessions WHERE created_at <= ?1 AND expires_at <= ?2 ORDER BY created_at LIMIT ?4) `

// sweeps are what Sweep does, in this order, each until there is nothing left to do: a visitor can have left hundreds of
// thousands of rows, too many for one transaction, and so what a cascade would delete has mostly been deleted before it.
var sweeps = []struct {
	statement string
	count     func(*Swept) *int64 // nil: not told
}{
	{`DELETE FROM leads WHERE rowid IN (SELECT rowid FROM leads WHERE created_at <= ?1 LIMIT ?3)`,
		func(s *Swept) *int64 { return &s.Leads }},
	{aged + `DELETE FROM events WHERE (conversation, n) IN (
		SELECT e.conversation, e.n FROM aged JOIN conversations c ON c.session_id = aged.id JOIN events e ON e.conversation = c.n LIMIT ?3)`, nil},
	{aged + `DELETE FROM messages WHERE (conversation, n) IN (
		SELECT m.conversation, m.n FROM aged JOIN conversations c ON c.session_id = aged.id JOIN messages m ON m.conversation = c.n LIMIT ?3)`,
		func(s *Swept) *int64 { return &s.Messages }},
	{aged + `DELETE FROM ratings WHERE rowid IN (
		SELECT r.rowid FROM aged JOIN conversations c ON c.session_id = aged.id JOIN ratings r ON r.conversation = c.n LIMIT ?3)`, nil},
	{aged + `DELETE FROM conversations WHERE n IN (
		SELECT c.n FROM aged JOIN conversations c ON c.session_id = aged.id LIMIT ?3)`,
		func(s *Swept) *int64 { return &s.Conversations }},
	{aged + `UPDATE leads SET session_id = NULL WHERE rowid IN (
		SELECT l.rowid FROM aged JOIN leads l ON l.session_id = aged.id LIMIT ?3)`, nil}, // younger ones, of the session's last hours
	{aged + `DELETE FROM sessions WHERE id IN aged AND id NOT IN (SELECT session_id FROM conversations WHERE session_id IN aged)`,
		func(s *Swept) *int64 { return &s.Sessions }}, // its redemptions go with it; the coupons keep the count
}

// Sweep deletes the sessions that were made at or before an instant and have ended by now, with everything under them, and
// the leads of that age. It does so in small transactions with time for other writers in between, whom it lets go first;
// where it ends early it has deleted what it says, and the next goes on. Several processes may sweep at once.
func (d *DB) Sweep(ctx context.Context, made, now time.Time) (s Swept, err error) {
	for {
		var due bool
		err := d.reader.QueryRowContext(ctx, `
			SELECT EXISTS (SELECT 1 FROM sessions WHERE created_at <= ?1 AND expires_at <= ?2)
			    OR EXISTS (SELECT 1 FROM leads WHERE created_at <= ?1)`, moment(made), moment(now)).Scan(&due)
		if err != nil || !due { // mostly nothing is, and no turn at writing is needed to see it
			return s, explain(err)
		}
		for _, sweep := range sweeps {
			for more := true; more; {
				n, err := d.sweepSome(ctx, sweep.statement, made, now)
				if sweep.count != nil {
					*sweep.count(&s) += n
				}
				if err == nil {
					err = pause(ctx, breath)
				}
				if err != nil {
					return s, err
				}
				more = n == sweptRows
			}
		}
	}
}

// sweepSome runs one statement in a transaction of its own, and says how many rows it changed.
func (d *DB) sweepSome(ctx context.Context, statement string, made, now time.Time) (n int64, err error) {
	err = patiently(ctx, d.transaction, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, statement, moment(made), moment(now), sweptRows, sweptSessions)
		if err != nil {
			return err
		}
		n, err = result.RowsAffected()
		return err
	})
	if err != nil {
		n = 0 // it was rolled back
	}
	return n, err
}

// pause waits, or returns the error of a context that is done.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
