package sqlite

import (
	"context"
	"database/sql"
	"fmt"
)

// A bound limits the size of the database, and within it the shares of documents and visitors. Each
// process has its own bound, so several processes may have different ones.
//
// The bound is on the pages in use at the end of each transaction that stores something. A
// transaction that would leave more is rolled back. A transaction that deletes is not checked, so
// that deleting always works. SQLite's own max_page_count fails deletions that need a page
// temporarily, and, in a file that is too large already, writes that would reuse a free page. Free
// pages stay in the file and are reused first, so the file is no larger than the most that was ever
// in use. The write-ahead log comes on top. SQLite moves it into the file once it has 4 MiB and no
// reader needs it. Because reads are short, the log grows to 4 MiB and one transaction.
// journal_size_limit truncates a log that was larger.
type bound struct {
	pages    int64                     // 0 means no bound
	visitors int64                     // max pages of visitors; set by check
	near     func(Share, int64, int64) // Options.NearlyFull
	warned   map[Share]bool            // shares for which near has been called
}

func newBound(o Options) bound {
	if o.MaxBytes <= 0 {
		return bound{}
	}
	return bound{pages: max(1, o.MaxBytes/pageSize), near: o.NearlyFull, warned: map[Share]bool{}}
}

// usage is the number of pages in use.
type usage struct {
	all    int64 // in the file
	others int64 // for everything except visitors' rows
}

func (u usage) visitors() int64 { return u.all - u.others }

// checkDocuments returns a *ShareError for a transaction that leaves more pages in use by
// documents, or in all, than are allowed.
func (b *bound) checkDocuments(ctx context.Context, tx *sql.Tx) error {
	if b.pages == 0 {
		return nil
	}
	u, err := readUsage(ctx, tx)
	if err != nil {
		return err
	}
	b.watch(u)
	// visitors can exceed their share if the bound was larger before
	limit := b.pages - max(b.visitors, u.visitors())
	if u.others > limit {
		return &ShareError{Share: OfDocuments, Used: u.others * pageSize, Max: limit * pageSize}
	}
	return nil
}

// checkVisit returns an error for a visitor's transaction that exceeds a share in h, or leaves more
// pages in use than are allowed.
func (b *bound) checkVisit(u usage, h holdings, workspace string) error {
	if b.pages == 0 {
		return nil
	}
	b.watch(u)
	h.visitors = u.visitors() * pageSize
	if e := h.exceeded(b.visitors * pageSize); e != nil {
		e.Workspace = workspace
		return e
	}
	if u.all > b.pages { // documents can exceed their share if the bound was larger before
		return fmt.Errorf("%w: %d bytes would be in use, %d are allowed", ErrFull, u.all*pageSize, b.pages*pageSize)
	}
	return nil
}

// watch reports each share once, when more than four fifths of it are in use.
func (b *bound) watch(u usage) {
	for _, share := range []struct {
		name        Share
		used, limit int64
	}{
		{OfDocuments, u.others, b.pages - b.visitors},
		{OfVisitors, u.visitors(), b.visitors},
	} {
		if b.near != nil && share.used > share.limit/5*4 && !b.warned[share.name] {
			b.warned[share.name] = true
			b.near(share.name, share.used*pageSize, share.limit*pageSize)
		}
	}
}

// check divides the bound into shares. It returns ErrSmall for a bound that is too small for the
// schema. It reports a share that is nearly full already.
func (b *bound) check(ctx context.Context, tx *sql.Tx) error {
	if b.pages == 0 {
		return nil
	}
	var least int64 // a page for each table and index, those of sqlite_schema, and 8 to begin with
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

// readUsage returns the number of pages in use.
func readUsage(ctx context.Context, tx *sql.Tx) (u usage, err error) {
	if u.all, err = pagesInUse(ctx, tx); err != nil {
		return u, err
	}
	err = tx.QueryRowContext(ctx, `SELECT other_pages FROM storage`).Scan(&u.others)
	return u, err
}

// pagesInUse returns the number of pages of the file that are not free.
func pagesInUse(ctx context.Context, tx *sql.Tx) (int64, error) {
	var pages, free int64
	if err := tx.QueryRowContext(ctx, `PRAGMA page_count`).Scan(&pages); err != nil {
		return 0, err
	}
	err := tx.QueryRowContext(ctx, `PRAGMA freelist_count`).Scan(&free)
	return pages - free, err
}
