package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/sample/terms"
)

// The index is one FTS5 table for all workspaces. Each token is prefixed with the number of its
// workspace. The prefix costs little space, because FTS5 stores a term by its difference from the
// one before, and it gives every workspace its own document lists and frequencies: a search never
// reads postings of other workspaces and is not ranked by them. Workspaces do share the number of
// documents and their average length, two parameters of bm25.
//
// search_terms holds the document frequency of each term. FTS5 can compute it too (fts5vocab), but
// only by reading the whole document list.
//
// The index changes in the same transaction as the documents. search_pending lists the documents
// that are not indexed yet: those of a data directory from before there was an index, or from
// before terms.Version changed. Index processes the list.

// An indexer changes the index of one workspace in the transaction that changes its documents.
type indexer struct {
	ctx       context.Context
	tx        *sql.Tx
	workspace int64
	prefix    string
	documents int            // change of the number of documents
	terms     map[string]int // change of each term's document frequency
	seen      map[string]bool
	text      strings.Builder
}

// newIndexer starts a change. It returns ErrReindexed for an index that another version has built.
func newIndexer(ctx context.Context, tx *sql.Tx, workspace string) (*indexer, error) {
	if err := checkVersion(ctx, tx); err != nil {
		return nil, err
	}
	x := &indexer{ctx: ctx, tx: tx, terms: map[string]int{}, seen: map[string]bool{}}
	if _, err := tx.ExecContext(ctx, `INSERT INTO search_workspaces (workspace_id) VALUES (?) ON CONFLICT DO NOTHING`, workspace); err != nil {
		return nil, err
	}
	err := tx.QueryRowContext(ctx, `SELECT n FROM search_workspaces WHERE workspace_id = ?`, workspace).Scan(&x.workspace)
	x.prefix = prefixOf(x.workspace)
	return x, err
}

// prefixOf returns the prefix of a workspace's tokens. Terms have no underscore.
func prefixOf(workspace int64) string { return strconv.FormatInt(workspace, 36) + "_" }

// checkVersion returns ErrReindexed for an index of another terms.Version. It initializes an index
// that was never used.
func checkVersion(ctx context.Context, tx *sql.Tx) error {
	version, err := termsVersion(ctx, tx)
	switch {
	case err != nil || version == terms.Version:
		return err
	case version != 0:
		return ErrReindexed
	}
	return resetIndex(ctx, tx)
}

func termsVersion(ctx context.Context, tx *sql.Tx) (version int, err error) {
	err = tx.QueryRowContext(ctx, `SELECT version FROM search_version`).Scan(&version)
	return version, err
}

// resetIndex empties the index and lists every document as pending.
func resetIndex(ctx context.Context, tx *sql.Tx) error {
	for _, statement := range []string{
		`INSERT INTO search (search) VALUES ('delete-all')`,
		`DELETE FROM search_terms`,
		`UPDATE search_workspaces SET documents = 0`,
		`DELETE FROM search_pending`,
		`INSERT INTO search_pending SELECT n FROM documents ORDER BY n`,
		`UPDATE search_version SET version = ` + strconv.Itoa(terms.Version),
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// add indexes document n.
func (x *indexer) add(n int64, d Document) error {
	title, text := x.tokens(d.Title), x.tokens(d.Text)
	x.count(1)
	_, err := x.tx.ExecContext(x.ctx, `INSERT INTO search (rowid, title, text) VALUES (?, ?, ?)`, n, title, text)
	return err
}

// remove removes document n from the index, or from the pending list if it is not indexed yet. d
// must be as it was indexed.
func (x *indexer) remove(n int64, d Document) error {
	pending, err := changed(x.tx.ExecContext(x.ctx, `DELETE FROM search_pending WHERE document = ?`, n))
	if err != nil || pending {
		return err
	}
	for _, s := range []string{d.Title, d.Text} {
		for t := range terms.Of(s) {
			x.seen[t.Text] = true
		}
	}
	x.count(-1)
	_, err = x.tx.ExecContext(x.ctx, `DELETE FROM search WHERE rowid = ?`, n)
	return err
}

// tokens returns the terms of s as FTS5 tokens, and adds them to seen.
func (x *indexer) tokens(s string) string {
	x.text.Reset()
	for t := range terms.Of(s) {
		x.seen[t.Text] = true
		x.text.WriteString(x.prefix)
		x.text.WriteString(t.Text)
		x.text.WriteByte(' ')
	}
	return x.text.String()
}

// count adds by to the frequency of the terms seen and to the number of documents.
func (x *indexer) count(by int) {
	for t := range x.seen {
		x.terms[t] += by
	}
	clear(x.seen)
	x.documents += by
}

// finish writes the frequencies in sorted order, so that each page is visited once, and many in a
// statement. Together that is 3 times as fast as one by one.
func (x *indexer) finish() error {
	maps.DeleteFunc(x.terms, func(_ string, by int) bool { return by == 0 })
	if _, err := x.tx.ExecContext(x.ctx, `UPDATE search_workspaces SET documents = documents + ? WHERE n = ?`, x.documents, x.workspace); err != nil {
		return err
	}
	fewer := false
	for some := range slices.Chunk(slices.Sorted(maps.Keys(x.terms)), 1000) {
		list := make([][2]any, len(some))
		for i, t := range some {
			list[i] = [2]any{t, x.terms[t]}
			fewer = fewer || x.terms[t] < 0
		}
		rows, err := json.Marshal(list)
		if err != nil {
			return err
		}
		_, err = x.tx.ExecContext(x.ctx, `
			INSERT INTO search_terms (workspace, term, documents) SELECT ?, value ->> 0, value ->> 1 FROM json_each(?) WHERE true
			ON CONFLICT DO UPDATE SET documents = documents + excluded.documents`, x.workspace, string(rows))
		if err == nil && fewer {
			_, err = x.tx.ExecContext(x.ctx, `
				DELETE FROM search_terms WHERE workspace = ? AND documents <= 0
				AND term IN (SELECT value ->> 0 FROM json_each(?) WHERE value ->> 1 < 0)`, x.workspace, string(rows))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Pending returns the number of documents that are not indexed yet: all documents if the index was
// built with another terms.Version.
func (d *DB) Pending(ctx context.Context) (n int, err error) {
	err = d.reader.QueryRowContext(ctx, `
		SELECT CASE WHEN version = ? THEN (SELECT count(*) FROM search_pending) ELSE (SELECT count(*) FROM documents) END
		FROM search_version`, terms.Version).Scan(&n)
	return n, explain(err)
}

const (
	batchDocuments = 100
	batchBytes     = 4 << 20
)

// Index indexes the pending documents, and all documents if terms.Version has changed. Each batch
// is a transaction, so that a crash loses at most the current batch. Several processes may index at
// once, and documents may change meanwhile.
func (d *DB) Index(ctx context.Context) error {
	err := retryBusy(ctx, d.writeUnbounded, func(tx *sql.Tx) error {
		version, err := termsVersion(ctx, tx)
		if err == nil && version != terms.Version {
			err = resetIndex(ctx, tx)
		}
		return err
	})
	for more := true; more && err == nil; {
		err = retryBusy(ctx, d.writeUnbounded, func(tx *sql.Tx) (err error) {
			more, err = indexBatch(ctx, tx)
			return err
		})
	}
	return err
}

// retryBusy calls write with f until the error is not ErrBusy or ctx is done. It is for background
// work.
func retryBusy(ctx context.Context, write func(context.Context, func(*sql.Tx) error) error, f func(*sql.Tx) error) error {
	for {
		if err := write(ctx, f); !errors.Is(err, ErrBusy) || ctx.Err() != nil {
			return err
		}
	}
}

// indexBatch indexes the first pending documents of one workspace, and reports whether there may be
// more.
func indexBatch(ctx context.Context, tx *sql.Tx) (more bool, err error) {
	rows, err := tx.QueryContext(ctx, `
		SELECT d.n, d.workspace_id, d.title, d.text FROM search_pending p JOIN documents d ON d.n = p.document
		ORDER BY p.document LIMIT ?`, batchDocuments)
	var batch []Document
	var numbers []int64
	workspace, size := "", 0
	err = collect(rows, err, func() error {
		var n int64
		var of string
		var doc Document
		if err := rows.Scan(&n, &of, &doc.Title, &doc.Text); err != nil {
			return err
		}
		if workspace == "" {
			workspace = of
		}
		if of != workspace || size > batchBytes {
			return errEnough
		}
		size += len(doc.Text)
		batch, numbers = append(batch, doc), append(numbers, n)
		return nil
	})
	if err != nil || len(batch) == 0 {
		return false, err
	}
	x, err := newIndexer(ctx, tx, workspace)
	if err != nil {
		return false, err
	}
	for i, doc := range batch {
		if err := x.add(numbers[i], doc); err != nil {
			return false, err
		}
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM search_pending WHERE document BETWEEN ? AND ?`, numbers[0], numbers[len(numbers)-1])
	return true, errors.Join(err, x.finish())
}
