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

	"github.com/weirlimit/weir/internal/sample/words"
)

// The index is one FTS5 table for all workspaces. Each token has its workspace's number before it, which costs next to
// nothing (terms are stored by what they do not share with the one before) and gives every workspace document lists and
// frequencies of its own: no question reads, or is ranked by, a posting of somebody else's. What workspaces do share is
// the number of documents and their average length, two figures of bm25.
//
// search_terms has each term's document frequency. FTS5 can tell it too (fts5vocab), but only by walking the whole list.
//
// The index changes in the transaction that changes the documents. search_pending lists those that a data directory had
// before it had an index, or before words.Version changed; Index works it off.

// An indexer changes the index of one workspace along with its documents, in their transaction.
type indexer struct {
	ctx       context.Context
	tx        *sql.Tx
	workspace int64
	prefix    string
	documents int            // how many more there are
	terms     map[string]int // in how many more documents each is
	seen      map[string]bool
	text      strings.Builder
}

// newIndexer starts a change. ErrReindexed.
func newIndexer(ctx context.Context, tx *sql.Tx, workspace string) (*indexer, error) {
	if err := sameWords(ctx, tx); err != nil {
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

// prefixOf is what the tokens of a workspace begin with. No term has an underscore.
func prefixOf(workspace int64) string { return strconv.FormatInt(workspace, 36) + "_" }

// sameWords makes sure that the index is one of this words.Version. One that was never used becomes so.
func sameWords(ctx context.Context, tx *sql.Tx) error {
	version, err := wordsVersion(ctx, tx)
	switch {
	case err != nil || version == words.Version:
		return err
	case version != 0:
		return ErrReindexed
	}
	return startOver(ctx, tx)
}

func wordsVersion(ctx context.Context, tx *sql.Tx) (version int, err error) {
	err = tx.QueryRowContext(ctx, `SELECT version FROM search_version`).Scan(&version)
	return version, err
}

// startOver empties the index and lists every document as pending.
func startOver(ctx context.Context, tx *sql.Tx) error {
	for _, statement := range []string{
		`INSERT INTO search (search) VALUES ('delete-all')`,
		`DELETE FROM search_terms`,
		`UPDATE search_workspaces SET documents = 0`,
		`DELETE FROM search_pending`,
		`INSERT INTO search_pending SELECT n FROM documents ORDER BY n`,
		`UPDATE search_version SET version = ` + strconv.Itoa(words.Version),
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

// remove takes document n, as it was indexed, out of the index, or off the list of those that are not yet in it.
func (x *indexer) remove(n int64, d Document) error {
	pending, err := changed(x.tx.ExecContext(x.ctx, `DELETE FROM search_pending WHERE document = ?`, n))
	if err != nil || pending {
		return err
	}
	for _, s := range []string{d.Title, d.Text} {
		for t := range words.Of(s) {
			x.seen[t.Text] = true
		}
	}
	x.count(-1)
	_, err = x.tx.ExecContext(x.ctx, `DELETE FROM search WHERE rowid = ?`, n)
	return err
}

// tokens is s as FTS5 is given it.
func (x *indexer) tokens(s string) string {
	x.text.Reset()
	for t := range words.Of(s) {
		x.seen[t.Text] = true
		x.text.WriteString(x.prefix)
		x.text.WriteString(t.Text)
		x.text.WriteByte(' ')
	}
	return x.text.String()
}

// count counts a document with the terms seen, up or down.
func (x *indexer) count(by int) {
	for t := range x.seen {
		x.terms[t] += by
	}
	clear(x.seen)
	x.documents += by
}

// finish writes the frequencies: in order, so that each page of them is met once, and many in a statement, which together
// is 3 times as fast as one by one.
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

// Pending says how many documents are not indexed yet, all of them where words.Version is not the index's.
func (d *DB) Pending(ctx context.Context) (n int, err error) {
	err = d.reader.QueryRowContext(ctx, `
		SELECT CASE WHEN version = ? THEN (SELECT count(*) FROM search_pending) ELSE (SELECT count(*) FROM documents) END
		FROM search_version`, words.Version).Scan(&n)
	return n, explain(err)
}

const (
	batchDocuments = 100
	batchBytes     = 4 << 20
)

// Index brings the index up to date: it indexes what is pending, and everything where words.Version has changed. Each
// batch is a transaction, so that what a crash leaves is done the next time. Several processes may do so at once, and
// documents may change meanwhile.
func (d *DB) Index(ctx context.Context) error {
	err := patiently(ctx, d.writeAnyway, func(tx *sql.Tx) error {
		version, err := wordsVersion(ctx, tx)
		if err == nil && version != words.Version {
			err = startOver(ctx, tx)
		}
		return err
	})
	for more := true; more && err == nil; {
		err = patiently(ctx, d.writeAnyway, func(tx *sql.Tx) (err error) {
			more, err = indexBatch(ctx, tx)
			return err
		})
	}
	return err
}

// patiently runs f by write, for what nobody waits for: however long others write, it has its turn.
func patiently(ctx context.Context, write func(context.Context, func(*sql.Tx) error) error, f func(*sql.Tx) error) error {
	for {
		if err := write(ctx, f); !errors.Is(err, ErrBusy) || ctx.Err() != nil {
			return err
		}
	}
}

// indexBatch indexes the first of what is pending, of one workspace, and says whether there may be more.
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
