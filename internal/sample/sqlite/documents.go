package sqlite

import (
	"context"
	"database/sql"
	"time"
)

// A Document is one of a workspace's synced pages.
type Document struct {
	ID, Title, URL, Text string // the id is the workspace's own
	Updated              time.Time
}

// Synced says what a bulk upsert did.
type Synced struct {
	Created, Updated, Unchanged int
}

// PutDocuments creates or replaces every document by its id, or none. Repeating it changes nothing.
func (d *DB) PutDocuments(ctx context.Context, workspace string, documents []Document, now time.Time) (s Synced, err error) {
	err = d.write(ctx, func(tx *sql.Tx) error {
		upsert, err := tx.PrepareContext(ctx, `
			INSERT INTO documents (workspace_id, id, title, url, text, updated_at) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (workspace_id, id) DO UPDATE
			SET title = excluded.title, url = excluded.url, text = excluded.text, updated_at = excluded.updated_at, version = version + 1
			WHERE (title, url, text) IS NOT (excluded.title, excluded.url, excluded.text)
			RETURNING version`)
		if err != nil {
			return err
		}
		defer upsert.Close()
		for _, doc := range documents {
			row := upsert.QueryRowContext(ctx, workspace, doc.ID, doc.Title, doc.URL, doc.Text, moment(now))
			if err := s.count(row); err != nil {
				return err
			}
		}
		return nil
	})
	return s, err
}

// count notes the outcome of one upsert by the version it returned: 1 is new, more is changed, no row is neither.
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

// Documents returns up to limit documents of the workspace in the order of their ids, after that id (empty: from the
// first), and whether there are more. A page ends early once its texts exceed maxBytes.
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
		doc.Updated = instant(updated)
		page = append(page, doc)
		size += len(doc.Text)
		return nil
	})
	return page, more, explain(err)
}

// DeleteDocuments deletes the workspace's documents of those ids, all that are there, and says how many there were.
func (d *DB) DeleteDocuments(ctx context.Context, workspace string, ids []string) (deleted int, err error) {
	err = d.write(ctx, func(tx *sql.Tx) error {
		remove, err := tx.PrepareContext(ctx, `DELETE FROM documents WHERE workspace_id = ? AND id = ?`)
		if err != nil {
			return err
		}
		defer remove.Close()
		for _, id := range ids {
			there, err := changed(remove.ExecContext(ctx, workspace, id))
			if err != nil {
				return err
			}
			if there {
				deleted++
			}
		}
		return nil
	})
	return deleted, err
}
