package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"os"
	"time"
)

// schema holds one file for each version of the schema, in order. A released file is never changed again.
//
//go:embed schema/*.sql
var schema embed.FS

const (
	// application marks a database as ours ("WEIR"), so that no other program's is taken for one.
	application = 0x57454952

	// checked is the size up to which a database is read through when it is opened; a larger one would hold up the start.
	checked = 64 << 20

	// openPatience is how long opening waits at least for other processes, which may be bringing the schema up to date.
	openPatience = 10 * time.Second
)

// migrate brings the schema up to date. Several processes may do so at once: one does the work, the others find it done.
func (d *DB) migrate(ctx context.Context) error {
	// The time is for waiting alone: a slow disk may need minutes for the work.
	waiting, cancel := context.WithTimeout(ctx, max(openPatience, d.patience))
	defer cancel()
	for {
		err := d.upgrade(ctx)
		if err == nil {
			return d.check(ctx)
		}
		if !errors.Is(err, ErrBusy) || waiting.Err() != nil {
			return err
		}
	}
}

// upgrade applies the schema files that the database lacks, all of them or none.
func (d *DB) upgrade(ctx context.Context) error {
	files, err := schema.ReadDir("schema")
	if err != nil {
		return err
	}
	return d.transaction(ctx, func(tx *sql.Tx) error {
		version, err := version(ctx, tx)
		if err != nil {
			return err
		}
		if version > len(files) {
			return fmt.Errorf("%w (schema %d, this one knows up to %d)", ErrNewer, version, len(files))
		}
		for i := version; i < len(files); i++ {
			statements, err := schema.ReadFile("schema/" + files[i].Name())
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, string(statements)); err != nil {
				return fmt.Errorf("apply %s: %w", files[i].Name(), err)
			}
		}
		if version < len(files) {
			_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", application, len(files)))
			if err == nil {
				err = countOthers(ctx, tx)
			}
			if err != nil {
				return err
			}
		}
		return d.bound.check(ctx, tx)
	})
}

// version reads the version of the schema, 0 in a new file. A database without our mark that has tables is ErrForeign.
func version(ctx context.Context, tx *sql.Tx) (int, error) {
	var mark, version, tables int
	err := tx.QueryRowContext(ctx, `
		SELECT (SELECT application_id FROM pragma_application_id),
		       (SELECT user_version FROM pragma_user_version),
		       (SELECT count(*) FROM sqlite_schema)`).Scan(&mark, &version, &tables)
	if err != nil {
		return 0, err
	}
	if mark != application && (mark != 0 || version != 0 || tables != 0) {
		return 0, ErrForeign
	}
	return version, nil
}

// check reads a small database through, so that damage is found at the start and not by a caller.
func (d *DB) check(ctx context.Context) error {
	info, err := os.Stat(d.path)
	if err != nil || info.Size() > checked {
		return err
	}
	var answer string
	if err := d.reader.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&answer); err != nil {
		return explain(err)
	}
	if answer != "ok" {
		return fmt.Errorf("%w: %s", ErrCorrupt, answer)
	}
	return nil
}
