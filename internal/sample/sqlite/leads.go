package sqlite

import (
	"context"
	"database/sql"
	"time"
)

// A Lead is someone who wants to be contacted. Empty fields were not given.
type Lead struct {
	ID                       string
	Email, Name, Phone, Note string
	Created                  time.Time
}

// AddLead stores a lead of the session's workspace.
func (d *DB) AddLead(ctx context.Context, s Session, l Lead) error {
	return d.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO leads (id, workspace_id, session_id, email, name, phone, note, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			l.ID, s.Workspace, s.ID, l.Email, maybe(l.Name), maybe(l.Phone), maybe(l.Note), moment(l.Created))
		return err
	})
}
