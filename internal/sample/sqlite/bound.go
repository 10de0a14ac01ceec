package sqlite

import (
	"context"
	"database/sql"
	"fmt"
)

// A bound holds the database to a size. It is kept by each process for itself, so that several may have different ones.
//
// What is bounded is the pages in use, at the end of each transaction that stores something: one that would leave more is
// rolled back, and the one that deletes is never asked, so that there is always a way out. SQLite's own max_page_count
// does neither: it fails deletions that need a page for a moment, and in a file that was larger before it fails writes
// that would reuse a free one. Free pages stay in the file and are used first, so that the file is no larger than what was
// once in use. Its log comes on top: it is moved into the file whenever it has 4 MiB and no reader needs it, reading is
// short, and so it grows to that and one transaction; journal_size_limit cuts off what an exception has left.
type bound struct {
	pages int64            // 0: there is none
	near  func(used int64) // nil: told already, or nobody is to be told
}

func newBound(o Options) bound {
	if o.MaxBytes <= 0 {
		return bound{}
	}
	return bound{pages: max(1, o.MaxBytes/pageSize), near: o.Near}
}

// hold is ErrFull where the transaction leaves more pages in use than are allowed.
func (b *bound) hold(ctx context.Context, tx *sql.Tx) error {
	if b.pages == 0 {
		return nil
	}
	// A full-text index writes what it gathers when there is a savepoint, and else at the commit: too late to be counted.
	if _, err := tx.ExecContext(ctx, `SAVEPOINT counted; RELEASE counted`); err != nil {
		return err
	}
	used, err := b.used(ctx, tx)
	if err == nil && used > b.pages {
		err = fmt.Errorf("%w: %d bytes would be in use, %d may be", ErrFull, used*pageSize, b.pages*pageSize)
	}
	return err
}

// used counts the pages in use, and tells once when they are more than four fifths of those that are allowed.
func (b *bound) used(ctx context.Context, tx *sql.Tx) (int64, error) {
	var pages, free int64
	if err := tx.QueryRowContext(ctx, `PRAGMA page_count`).Scan(&pages); err != nil {
		return 0, err
	}
	if pages <= b.pages/5*4 { // all the more without the free ones
		return pages, nil
	}
	if err := tx.QueryRowContext(ctx, `PRAGMA freelist_count`).Scan(&free); err != nil {
		return 0, err
	}
	used := pages - free
	if used > b.pages/5*4 && b.near != nil {
		b.near(used * pageSize)
		b.near = nil
	}
	return used, nil
}

// check says whether the bound leaves room for the schema, and tells of a database that nears or exceeds it already.
func (b *bound) check(ctx context.Context, tx *sql.Tx) error {
	if b.pages == 0 {
		return nil
	}
	var least int64 // a page for each table and index, those that list them, and a few to begin with
	err := tx.QueryRowContext(ctx, `SELECT count(*) + sum(length(sql) + 100) / ? + 8 FROM sqlite_schema WHERE rootpage > 0`, pageSize).Scan(&least)
	if err != nil {
		return err
	}
	if b.pages < least {
		return fmt.Errorf("%w: %d bytes, and the tables alone need %d", ErrSmall, b.pages*pageSize, least*pageSize)
	}
	_, err = b.used(ctx, tx)
	return err
}
