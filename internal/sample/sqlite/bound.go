package sqlite

import (
	"context"
	"database/sql"
	"fmt"
)

// A bound holds the database to a size, and within it documents and visitors to their shares. Each
// process has its own, so several may have different ones.
//
// It bounds the pages in use at the end of each transaction that stores something: one that would
// leave more is rolled back. A transaction that deletes is never asked, so that there is always a
// way out. SQLite's own max_page_count does neither: it fails deletions that need a page for a
// moment, and in a file that was larger before it fails writes that would reuse a free one. Free
// pages stay in the file and are used first, so the file is no larger than what was once in use.
// Its log comes on top: it is moved into the file whenever it has 4 MiB and no reader needs it,
// reading is short, and so it grows to that and one transaction; journal_size_limit cuts off what
// an exception has left.
type bound struct {
	pages    int64                     // 0: no bound
	visitors int64                     // of pages, what visitors may have; set by check
	near     func(Share, int64, int64) // nil: nobody is to be told
	told     map[Share]bool            // which shares near was called for
}

func newBound(o Options) bound {
	if o.MaxBytes <= 0 {
		return bound{}
	}
	return bound{pages: max(1, o.MaxBytes/pageSize), near: o.Near, told: map[Share]bool{}}
}

// usage is how many pages are in use.
type usage struct {
	all    int64 // of the file
	others int64 // of everything that is not the visitors'
}

func (u usage) visitors() int64 { return u.all - u.others }

// hold returns a *ShareError if the transaction leaves more pages to documents, or in all, than are
// allowed.
func (b *bound) hold(ctx context.Context, tx *sql.Tx) error {
	if b.pages == 0 {
		return nil
	}
	u, err := readUsage(ctx, tx)
	if err != nil {
		return err
	}
	b.watch(u)
	most := b.pages - max(b.visitors, u.visitors()) // they can have more than theirs if the bound was larger before
	if u.others > most {
		return &ShareError{Share: OfDocuments, Used: u.others * pageSize, Most: most * pageSize}
	}
	return nil
}

// admit returns an error if a visitor's transaction leaves h to somebody whose share is less, or
// more pages in use than are allowed.
func (b *bound) admit(u usage, h holdings, workspace string) error {
	if b.pages == 0 {
		return nil
	}
	b.watch(u)
	h.visitors = u.visitors() * pageSize
	if e := h.overdrawn(b.visitors * pageSize); e != nil {
		e.Workspace = workspace
		return e
	}
	if u.all > b.pages { // documents can have more than theirs if the bound was larger before
		return fmt.Errorf("%w: %d bytes would be in use, %d may be", ErrFull, u.all*pageSize, b.pages*pageSize)
	}
	return nil
}

// watch reports each share once when more than four fifths of it are in use.
func (b *bound) watch(u usage) {
	for _, share := range []struct {
		name       Share
		used, most int64
	}{
		{OfDocuments, u.others, b.pages - b.visitors},
		{OfVisitors, u.visitors(), b.visitors},
	} {
		if b.near != nil && share.used > share.most/5*4 && !b.told[share.name] {
			b.told[share.name] = true
			b.near(share.name, share.used*pageSize, share.most*pageSize)
		}
	}
}

// check divides the bound into shares. It returns ErrSmall if the bound leaves no room for the
// schema, and reports a share that is nearly used up already.
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
	b.visitors = (b.pages - least) / visitorsPart
	u, err := readUsage(ctx, tx)
	if err == nil {
		b.watch(u)
	}
	return err
}

// readUsage counts the pages in use.
func readUsage(ctx context.Context, tx *sql.Tx) (u usage, err error) {
	if u.all, err = pagesInUse(ctx, tx); err != nil {
		return u, err
	}
	err = tx.QueryRowContext(ctx, `SELECT other_pages FROM storage`).Scan(&u.others)
	return u, err
}

// pagesInUse counts the pages of the file that are not free.
func pagesInUse(ctx context.Context, tx *sql.Tx) (int64, error) {
	var pages, free int64
	if err := tx.QueryRowContext(ctx, `PRAGMA page_count`).Scan(&pages); err != nil {
		return 0, err
	}
	err := tx.QueryRowContext(ctx, `PRAGMA freelist_count`).Scan(&free)
	return pages - free, err
}
