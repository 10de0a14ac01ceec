package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/weirlimit/weir/internal/wait"
)

// Swept counts what Sweep deleted.
type Swept struct {
	Sessions, Conversations, Messages, Leads int64
}

const (
	// sweepRows is the max number of rows of a transaction. It bounds how long other writers wait.
	sweepRows     = 500
	sweepSessions = 100 // max sessions that are emptied before they are deleted
	// sweepPause is the pause between two transactions, in which other processes, which poll for
	// the lock, get it.
	sweepPause = 20 * time.Millisecond
)

// aged selects sessions to delete: ?1 is the latest creation time, ?2 is now, ?4 the max number of
// sessions. Statements that use it take the max number of rows as ?3.
const aged = `WITH aged AS (
	SELECT id FROM sessions WHERE created_at <= ?1 AND expires_at <= ?2 ORDER BY created_at LIMIT ?4) `

// sweeps are the statements of Sweep, in this order, each repeated until it has nothing left to do.
// A visitor can have left hundreds of thousands of rows, too many for one transaction, so most rows
// are deleted before a cascade would delete them.
var sweeps = []struct {
	statement string
	count     func(*Swept) *int64 // nil if Swept does not count the rows
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
	// Leads of the session's last hours are younger, and stay without it.
	{aged + `UPDATE leads SET session_id = NULL WHERE rowid IN (
		SELECT l.rowid FROM aged JOIN leads l ON l.session_id = aged.id LIMIT ?3)`, nil},
	{aged + `DELETE FROM sessions WHERE id IN aged AND id NOT IN (SELECT session_id FROM conversations WHERE session_id IN aged)`,
		// Redemptions are deleted with their session. Coupons keep their count.
		func(s *Swept) *int64 { return &s.Sessions }},
}

// Sweep deletes the sessions that were created at or before made and have expired by now, with all
// their rows, and the leads of that age. It uses small transactions and pauses between them, so
// that other writers wait briefly. If Sweep returns an error, s counts what it has deleted, and the
// next call continues. Several processes may sweep at once.
func (d *DB) Sweep(ctx context.Context, made, now time.Time) (s Swept, err error) {
	for {
		var due bool
		err := d.reader.QueryRowContext(ctx, `
			SELECT EXISTS (SELECT 1 FROM sessions WHERE created_at <= ?1 AND expires_at <= ?2)
			    OR EXISTS (SELECT 1 FROM leads WHERE created_at <= ?1)`, toMillis(made), toMillis(now)).Scan(&due)
		// Nothing is due most of the time, and this check needs no write lock.
		if err != nil || !due {
			return s, explain(err)
		}
		for _, sweep := range sweeps {
			for more := true; more; {
				n, err := d.sweepSome(ctx, sweep.statement, made, now)
				if sweep.count != nil {
					*sweep.count(&s) += n
				}
				if err == nil {
					err = wait.For(ctx, sweepPause)
				}
				if err != nil {
					return s, err
				}
				more = n == sweepRows
			}
		}
	}
}

// sweepSome runs one statement in a transaction of its own and returns the number of rows that it
// changed.
func (d *DB) sweepSome(ctx context.Context, statement string, made, now time.Time) (n int64, err error) {
	err = retryBusy(ctx, d.transaction, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, statement, toMillis(made), toMillis(now), sweepRows, sweepSessions)
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
