package sqlite

import (
	"context"
	"database/sql"
	"time"
)

// A Document is one synced page of a workspace.
type Document struct {
	ID, Title, URL, Text string // the id is the workspace's own
	Updated              time.Time
}

// Synced counts what a bulk upsert did.
type Synced struct {
	Created, Updated, Unchanged int
}

// PutDocuments creates or replaces every document by its id, or none, together with its index
// entries. The next question is answered from them. PutDocuments is idempotent.
func (d *DB) PutDocuments(ctx context.Context, workspace string, documents []Document, now time.Time) (s Synced, err error) {
	err = d.write(ctx, func(tx *sql.Tx) error {
		s = Synced{}
		x, err := newIndexer(ctx, tx, workspace)
		if err != nil {
			return err
		}
		for _, doc := range documents {
			if err := x.put(workspace, doc, now, &s); err != nil {
				return err
			}
		}
		return x.finish()
	})
	return s, err
}

// put creates or replaces one document, and counts it in s. It skips an unchanged document, and
// leaves the index alone if title and text are unchanged.
func (x *indexer) put(workspace string, doc Document, now time.Time, s *Synced) error {
	n, old, err := x.document(workspace, doc.ID)
	switch {
	case err == sql.ErrNoRows:
		s.Created++
		err = x.tx.QueryRowContext(x.ctx, `
			INSERT INTO documents (workspace_id, id, title, url, text, updated_at) VALUES (?, ?, ?, ?, ?, ?) RETURNING n`,
			workspace, doc.ID, doc.Title, doc.URL, doc.Text, toMillis(now)).Scan(&n)
		if err != nil {
			return err
		}
		return x.add(n, doc)
	case err != nil:
		return err
	case old.Title == doc.Title && old.URL == doc.URL && old.Text == doc.Text:
		s.Unchanged++
		return nil
	}
	s.Updated++
	_, err = x.tx.ExecContext(x.ctx, `
		UPDATE documents SET title = ?, url = ?, text = ?, updated_at = ?, version = version + 1 WHERE n = ?`,
		doc.Title, doc.URL, doc.Text, toMillis(now), n)
	if err != nil || old.Title == doc.Title && old.Text == doc.Text {
		return err
	}
	if err := x.remove(n, old); err != nil {
		return err
	}
	return x.add(n, doc)
}

// document returns the stored document with that id, or sql.ErrNoRows.
func (x *indexer) document(workspace, id string) (n int64, d Document, err error) {
	err = x.tx.QueryRowContext(x.ctx, `SELECT n, title, url, text FROM documents WHERE workspace_id = ? AND id = ?`, workspace, id).
		Scan(&n, &d.Title, &d.URL, &d.Text)
	return n, d, err
}

// count counts the outcome of one upsert by the version it returned: version 1 is new, a later
// version is changed, and no row is unchanged.
func (s *Synced) count(row *sql.Row) error {
	var version int64
	err := row.Scan(&version)
	switch {
	case err == sql.ErrNoRows:
		s.Unchanged++
		return nil
	case err != nil:
		return err
	case version == 1:
		s.Created++
	default:
		s.Updated++
	}
	return nil
}

// Documents returns up to limit documents of the workspace after that id, in the order of ids, and
// whether there are more. An empty id starts from the first. A page ends early once its texts
// exceed maxBytes.
func (d *DB) Documents(ctx context.Context, workspace, after string, limit, maxBytes int) (page []Document, more bool, err error) {
	rows, err := d.reader.QueryContext(ctx, `
		SELECT id, title, url, text, updated_at FROM documents
		WHERE workspace_id = ? AND id > ? ORDER BY id LIMIT ?`, workspace, after, limit+1)
	size := 0
	err = collect(rows, err, func() error {
		if more = len(page) == limit || size > maxBytes; more {
			return errEnough
		}
		var doc Document
		var updated int64
		if err := rows.Scan(&doc.ID, &doc.Title, &doc.URL, &doc.Text, &updated); err != nil {
			return err
		}
		doc.Updated = fromMillis(updated)
		page = append(page, doc)
		size += len(doc.Text)
		return nil
	})
	return page, more, explain(err)
}

// DeleteDocuments deletes the workspace's documents with those ids and their index entries, and
// returns how many existed.
func (d *DB) DeleteDocuments(ctx context.Context, workspace string, ids []string) (deleted int, err error) {
	err = d.writeUnbounded(ctx, func(tx *sql.Tx) error {
		deleted = 0
		x, err := newIndexer(ctx, tx, workspace)
		if err != nil {
			return err
		}
		for _, id := range ids {
			n, old, err := x.document(workspace, id)
			if err == sql.ErrNoRows {
				continue
			}
			if err == nil { // before the row, whose deletion also deletes it from search_pending
				err = x.remove(n, old)
			}
			if err == nil {
				_, err = tx.ExecContext(ctx, `DELETE FROM documents WHERE n = ?`, n)
			}
			if err != nil {
				return err
			}
			deleted++
		}
		return x.finish()
	})
	return deleted, err
}
