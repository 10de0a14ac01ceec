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

// schema holds one file for each version of the schema, in order. A released file never changes.
//
//go:embed schema/*.sql
var schema embed.FS

const (
	// application is the application ID ("WEIR") that marks a database as ours.
	application = 0x57454952

	// maxChecked is the max size of a database that Open checks for damage. The check of a larger
	// one would delay the start too long.
	maxChecked = 64 << 20

	// minOpenWait is the min time for which Open waits for other processes, which may be migrating
	// the schema.
	minOpenWait = 10 * time.Second
)

// migrate brings the schema up to date. If several processes do so at once, one does the work and
// the others wait for it.
func (d *DB) migrate(ctx context.Context) error {
	// The time-out limits only the wait for the lock: on a slow disk the work can take minutes.
	waiting, cancel := context.WithTimeout(ctx, max(minOpenWait, d.busyTimeout))
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

// upgrade applies the missing schema files in one transaction.
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
				err = recountOtherPages(ctx, tx)
			}
			if err != nil {
				return err
			}
		}
		return d.bound.check(ctx, tx)
	})
}

// version returns the version of the schema, which is 0 in a new file. It returns ErrForeign for a
// database with tables and without our application ID.
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

// check checks a small database for damage, so that damage is found at the start and not by a
// request.
func (d *DB) check(ctx context.Context) error {
	info, err := os.Stat(d.path)
	if err != nil || info.Size() > maxChecked {
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
