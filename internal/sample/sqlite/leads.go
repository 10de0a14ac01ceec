package sqlite

import (
	"context"
	"time"
)

// A Lead is a visitor who wants to be contacted. All fields but ID, Email and Created may be empty.
type Lead struct {
	ID                       string
	Email, Name, Phone, Note string
	Created                  time.Time
}

// AddLead stores a lead of the session's workspace.
func (d *DB) AddLead(ctx context.Context, s Session, l Lead) error {
	return d.visit(ctx, s.ID, func(v *visit) error {
		v.leads = charge(leadCharge, len(l.Email), len(l.Name), len(l.Phone), len(l.Note))
		_, err := v.ExecContext(ctx, `
			INSERT INTO leads (id, workspace_id, session_id, email, name, phone, note, created_at, bytes, origin)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, (SELECT origin FROM sessions WHERE id = ?3))`,
			l.ID, s.Workspace, s.ID, l.Email, nullString(l.Name), nullString(l.Phone), nullString(l.Note), toMillis(l.Created), v.leads)
		return err
	})
}
