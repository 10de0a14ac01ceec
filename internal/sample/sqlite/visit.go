package sqlite

import (
	"context"
	"database/sql"
)

// A visit is a transaction that stores rows of a visitor, with the sum of their charges.
type visit struct {
	*sql.Tx
	rows  int64 // charges of rows that are deleted with their session
	leads int64 // charges of leads
}

// The fixed charge of a row, which is for its other fields and its entries in indexes.
const (
	sessionCharge      = 640 // including the rows of its origins
	conversationCharge = 320
	messageCharge      = 256
	eventCharge        = 96
	leadCharge         = 384
	ratingCharge       = 256
	redemptionCharge   = 96
)

// charge returns the bytes that a row with that much content takes in the file, rounded up, so that
// a share of bytes is also a share of pages. Half of the content is added for the empty part of
// pages. SQLite moves all but 489 bytes of a long row to overflow pages.
func charge(fixed int64, content ...int) int64 {
	const local, left, overflow = 900, 489, pageSize - 4
	n := int64(0)
	for _, c := range content {
		n += int64(c)
	}
	if n <= local {
		return fixed + n + n/2
	}
	return fixed + left + left/2 + (n-left+overflow-1)/overflow*pageSize
}

// visit runs f in a transaction and commits it if f returns nil and every share has room for what f
// stored.
func (d *DB) visit(ctx context.Context, session string, f func(*visit) error) error {
	return d.transaction(ctx, func(tx *sql.Tx) error {
		v := &visit{Tx: tx}
		if err := f(v); err != nil || v.rows+v.leads == 0 {
			return err
		}
		if _, err := tx.StmtContext(ctx, d.accounts.charge).ExecContext(ctx, v.rows, v.leads, session); err != nil {
			return err
		}
		return d.admit(ctx, tx, session)
	})
}

// accounts are the statements that account for every visit, prepared once.
type accounts struct{ charge, held *sql.Stmt }

// prepare prepares the statements on the write connection. The schema must be up to date.
func (a *accounts) prepare(ctx context.Context, writer *sql.DB) (err error) {
	a.charge, err = writer.PrepareContext(ctx, `UPDATE sessions SET bytes = bytes + ?, lead_bytes = lead_bytes + ? WHERE id = ?`)
	if err != nil {
		return explain(err)
	}
	a.held, err = writer.PrepareContext(ctx, `
		SELECT s.bytes + s.lead_bytes, w.id, w.bytes, coalesce(a.bytes, 0), coalesce(n.bytes, 0), page_count - freelist_count, other_pages
		FROM sessions s JOIN workspaces w ON w.id = s.workspace_id LEFT JOIN origins a ON a.n = s.origin LEFT JOIN origins n ON n.n = a.network,
			storage, pragma_page_count, pragma_freelist_count
		WHERE s.id = ?`)
	return explain(err)
}

// admit returns an error for a transaction that leaves any share of the session's storage over its
// bound.
func (d *DB) admit(ctx context.Context, tx *sql.Tx, session string) error {
	if d.bound.pages == 0 {
		return nil
	}
	var h holdings
	var u usage
	var workspace string
	err := tx.StmtContext(ctx, d.accounts.held).QueryRowContext(ctx, session).
		Scan(&h.session, &workspace, &h.workspace, &h.address, &h.network, &u.all, &u.others)
	if err != nil {
		return err
	}
	return d.bound.checkVisit(u, h, workspace)
}

// trackOtherPages runs f, which must not change the tables of visitors, and adds the pages that f
// allocated or freed to other_pages. All other pages in use belong to visitors, so their number is
// exact and costs visits nothing.
func trackOtherPages(ctx context.Context, tx *sql.Tx, f func() error) error {
	before, err := pagesInUse(ctx, tx)
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	// A full-text index flushes its pending writes at a savepoint or at the commit, and after the
	// commit is too late to count them.
	if _, err := tx.ExecContext(ctx, `SAVEPOINT counted; RELEASE counted`); err != nil {
		return err
	}
	after, err := pagesInUse(ctx, tx)
	if err == nil && after != before {
		_, err = tx.ExecContext(ctx, `UPDATE storage SET other_pages = other_pages + ?`, after-before)
	}
	return err
}

// recountOtherPages computes other_pages again after a change of the schema. dbstat reads only the
// tables that the query names, so this reads the visitors' tables alone.
func recountOtherPages(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `
		UPDATE storage SET other_pages = (SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count) - (
			SELECT sum(pageno - 1) FROM sqlite_schema s CROSS JOIN dbstat d ON d.name = s.name AND d.aggregate = 1
			WHERE s.tbl_name IN ('origins', 'sessions', 'conversations', 'messages', 'events', 'leads', 'ratings', 'redemptions') AND s.rootpage > 0)`)
	return err
}
