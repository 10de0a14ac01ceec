package sqlite

import (
	"context"
	"database/sql"
	"time"
)

// A Coupon takes a percentage or an amount off.
type Coupon struct {
	Code     string    // upper case
	Percent  int64     // 1 to 100, or 0
	Amount   int64     // minor units, or 0
	Currency string    // of the amount and the minimum; may be empty
	Starts   time.Time // valid from then on; zero: always was
	Ends     time.Time // no more from then on; zero: for good
	Minimum  int64     // of the total, in minor units; 0: none
	MaxUses  int64     // how many sessions may use it; 0: any number, and none is counted
	Uses     int64     // how many have, while there was a MaxUses; set by the database
	Updated  time.Time
}

// PutCoupons creates or replaces every coupon by its code, or none. Repeating it changes nothing. A coupon that is
// replaced keeps its uses, also where they are more than it allows from now on.
func (d *DB) PutCoupons(ctx context.Context, workspace string, coupons []Coupon, now time.Time) (s Synced, err error) {
	err = d.write(ctx, func(tx *sql.Tx) error {
		upsert, err := tx.PrepareContext(ctx, `
			INSERT INTO coupons (workspace_id, code, percent, amount, currency, starts_at, ends_at, minimum, max_uses, updated_at)
			VALUES (?, ?, nullif(?, 0), nullif(?, 0), ?, ?, ?, nullif(?, 0), nullif(?, 0), ?)
			ON CONFLICT (workspace_id, code) DO UPDATE
			SET percent = excluded.percent, amount = excluded.amount, currency = excluded.currency,
			    starts_at = excluded.starts_at, ends_at = excluded.ends_at,
			    minimum = excluded.minimum, max_uses = excluded.max_uses,
			    updated_at = excluded.updated_at, version = version + 1
			WHERE (percent, amount, currency, starts_at, ends_at, minimum, max_uses) IS NOT
			      (excluded.percent, excluded.amount, excluded.currency, excluded.starts_at, excluded.ends_at,
			       excluded.minimum, excluded.max_uses)
			RETURNING version`)
		if err != nil {
			return err
		}
		defer upsert.Close()
		for _, c := range coupons {
			row := upsert.QueryRowContext(ctx, workspace, c.Code, c.Percent, c.Amount, maybe(c.Currency),
				maybeMoment(c.Starts), maybeMoment(c.Ends), c.Minimum, c.MaxUses, moment(now))
			if err := s.count(row); err != nil {
				return err
			}
		}
		return nil
	})
	return s, err
}

const couponColumns = `
	SELECT code, coalesce(percent, 0), coalesce(amount, 0), coalesce(currency, ''), starts_at, ends_at,
	       coalesce(minimum, 0), coalesce(max_uses, 0), uses, updated_at
	FROM coupons `

// Coupons returns up to limit coupons of the workspace in the order of their codes, after that code (empty: from the
// first), and whether there are more.
func (d *DB) Coupons(ctx context.Context, workspace, after string, limit int) (page []Coupon, more bool, err error) {
	rows, err := d.reader.QueryContext(ctx, couponColumns+`WHERE workspace_id = ? AND code > ? ORDER BY code LIMIT ?`,
		workspace, after, limit+1)
	err = collect(rows, err, func() error {
		c, err := scanCoupon(rows)
		page = append(page, c)
		return err
	})
	page, more = cut(page, limit)
	return page, more, explain(err)
}

// UseCoupon returns the coupon of that code in the session's workspace once judge has nothing against it. Where its uses
// are limited the session holds one of them then, however often it asks, and uses never exceed the limit, whoever asks at
// the same time. ErrNotFound, ErrUsedUp, or what judge returned: then nothing was used. Judge may be called twice.
func (d *DB) UseCoupon(ctx context.Context, s Session, code string, now time.Time, judge func(Coupon) error) (c Coupon, err error) {
	var held bool
	err = d.read(ctx, func(tx *sql.Tx) error { // most requests use nothing up, and need no turn at writing
		c, held, err = usable(ctx, tx, s, code, judge)
		return err
	})
	if err != nil || held || c.MaxUses == 0 {
		return c, err
	}
	err = d.visit(ctx, s.ID, func(v *visit) error {
		c, held, err = usable(ctx, v.Tx, s, code, judge) // it may have changed since
		if err != nil || held || c.MaxUses == 0 {
			return err
		}
		v.rows = charge(redemptionCharge, len(code))
		_, err = v.ExecContext(ctx, `INSERT INTO redemptions (session_id, code, created_at) VALUES (?, ?, ?)`, s.ID, code, moment(now))
		if err != nil {
			return err
		}
		c.Uses++
		_, err = v.ExecContext(ctx, `UPDATE coupons SET uses = uses + 1 WHERE workspace_id = ? AND code = ?`, s.Workspace, code)
		return err
	})
	return c, err
}

// usable reads the coupon of that code, if the session may use it, and whether the session holds a use of it already.
// ErrNotFound, ErrUsedUp, or what judge returns.
func usable(ctx context.Context, tx *sql.Tx, s Session, code string, judge func(Coupon) error) (c Coupon, held bool, err error) {
	c, err = scanCoupon(tx.QueryRowContext(ctx, couponColumns+`WHERE workspace_id = ? AND code = ?`, s.Workspace, code))
	if err != nil {
		return c, false, err
	}
	if err = judge(c); err != nil || c.MaxUses == 0 {
		return c, false, err
	}
	err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM redemptions WHERE session_id = ? AND code = ?)`, s.ID, code).Scan(&held)
	if err == nil && !held && c.Uses >= c.MaxUses {
		err = ErrUsedUp
	}
	return c, held, err
}

func scanCoupon(row interface{ Scan(...any) error }) (c Coupon, err error) {
	var updated int64
	var starts, ends sql.NullInt64
	err = row.Scan(&c.Code, &c.Percent, &c.Amount, &c.Currency, &starts, &ends, &c.Minimum, &c.MaxUses, &c.Uses, &updated)
	if starts.Valid {
		c.Starts = instant(starts.Int64)
	}
	if ends.Valid {
		c.Ends = instant(ends.Int64)
	}
	c.Updated = instant(updated)
	return c, err
}
