package sqlite

import (
	"context"
	"database/sql"
	"time"
)

// A Token is a stored API token of a workspace, without its secret.
type Token struct {
	ID        string
	Workspace string
	Plan      string // empty: none
	Hash      [32]byte
	Created   time.Time
	Revoked   time.Time // zero means valid
}

// Counts are the numbers of synced rows of a workspace.
type Counts struct {
	Documents, Coupons int64
}

// HasWorkspace reports whether a workspace with that id exists.
func (d *DB) HasWorkspace(ctx context.Context, id string) (bool, error) {
	var there bool
	err := d.reader.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM workspaces WHERE id = ?)`, id).Scan(&there)
	return there, explain(err)
}

// AddFirstWorkspace creates a workspace if none exists, and reports whether it did.
func (d *DB) AddFirstWorkspace(ctx context.Context, id string, now time.Time) (made bool, err error) {
	err = d.writeUnbounded(ctx, func(tx *sql.Tx) error {
		made, err = changed(tx.ExecContext(ctx,
			`INSERT INTO workspaces (id, created_at) SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM workspaces)`,
			id, toMillis(now)))
		return err
	})
	return made, err
}

// Counts counts the synced rows of the workspace.
func (d *DB) Counts(ctx context.Context, workspace string) (c Counts, err error) {
	err = d.reader.QueryRowContext(ctx, `
		SELECT (SELECT count(*) FROM documents WHERE workspace_id = ?1),
		       (SELECT count(*) FROM coupons WHERE workspace_id = ?1)`, workspace).Scan(&c.Documents, &c.Coupons)
	return c, explain(err)
}

// AddToken stores t. If its workspace does not exist, AddToken creates it and returns newWorkspace
// true.
func (d *DB) AddToken(ctx context.Context, t Token) (newWorkspace bool, err error) {
	err = d.writeDurably(ctx, func(tx *sql.Tx) error {
		newWorkspace, err = changed(tx.ExecContext(ctx,
			`INSERT INTO workspaces (id, created_at) VALUES (?, ?) ON CONFLICT DO NOTHING`, t.Workspace, toMillis(t.Created)))
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO tokens (id, workspace_id, plan, hash, created_at) VALUES (?, ?, ?, ?, ?)`,
			t.ID, t.Workspace, t.Plan, t.Hash[:], toMillis(t.Created))
		return err
	})
	return newWorkspace && err == nil, err
}

const tokenColumns = `SELECT id, workspace_id, plan, hash, created_at, revoked_at FROM tokens `

// Token returns the token with that id, revoked or not. It returns ErrNotFound for an unknown
// token.
func (d *DB) Token(ctx context.Context, id string) (Token, error) {
	t, err := scanToken(d.reader.QueryRowContext(ctx, tokenColumns+`WHERE id = ?`, id))
	return t, explain(err)
}

// Tokens returns every token, oldest first.
func (d *DB) Tokens(ctx context.Context) (all []Token, err error) {
	rows, err := d.reader.QueryContext(ctx, tokenColumns+`ORDER BY created_at, id`)
	err = collect(rows, err, func() error {
		t, err := scanToken(rows)
		all = append(all, t)
		return err
	})
	return all, explain(err)
}

// RevokeToken revokes the token with that id. A token that is revoked already keeps its date.
// RevokeToken returns ErrNotFound for an unknown token.
func (d *DB) RevokeToken(ctx context.Context, id string, now time.Time) error {
	return d.writeDurably(ctx, func(tx *sql.Tx) error {
		there, err := changed(tx.ExecContext(ctx,
			`UPDATE tokens SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?`, toMillis(now), id))
		if err == nil && !there {
			err = ErrNotFound
		}
		return err
	})
}

// SetTokenPlan changes the plan of the token with that id; an empty plan is none. It returns
// ErrNotFound for an unknown token.
func (d *DB) SetTokenPlan(ctx context.Context, id, plan string) error {
	return d.writeDurably(ctx, func(tx *sql.Tx) error {
		there, err := changed(tx.ExecContext(ctx, `UPDATE tokens SET plan = ? WHERE id = ?`, plan, id))
		if err == nil && !there {
			err = ErrNotFound
		}
		return err
	})
}

func scanToken(row interface{ Scan(...any) error }) (t Token, err error) {
	var hash []byte
	var created int64
	var revoked sql.NullInt64
	if err := row.Scan(&t.ID, &t.Workspace, &t.Plan, &hash, &created, &revoked); err != nil {
		return t, err
	}
	copy(t.Hash[:], hash)
	t.Created = fromMillis(created)
	if revoked.Valid {
		t.Revoked = fromMillis(revoked.Int64)
	}
	return t, nil
}

// changed reports whether a statement changed any row.
func changed(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
