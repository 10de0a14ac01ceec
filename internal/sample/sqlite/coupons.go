package sqlite

import (
	"context"
	"database/sql"
	"time"
)

// A Coupon gives a discount of a percentage or an amount.
type Coupon struct {
	Code     string    // upper case
	Percent  int64     // 1 to 100, or 0
	Amount   int64     // minor units, or 0
	Currency string    // of Amount and Minimum; may be empty
	Starts   time.Time // valid from this time on; zero means no start
	Ends     time.Time // invalid from this time on; zero means no end
	Minimum  int64     // of the total, in minor units; 0 means none
	// MaxUses is the max number of sessions that use it. 0 means no limit, and uses are not
	// counted.
	MaxUses int64
	Uses    int64 // sessions that used it while there was a MaxUses; set by the database
	Updated time.Time
}

// PutCoupons creates or replaces every coupon by its code, or none. It is idempotent. A coupon that
// is replaced keeps its uses, even beyond its new max.
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
			row := upsert.QueryRowContext(ctx, workspace, c.Code, c.Percent, c.Amount, nullString(c.Currency),
				nullMillis(c.Starts), nullMillis(c.Ends), c.Minimum, c.MaxUses, toMillis(now))
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

// Coupons returns up to limit coupons of the workspace after that code, in the order of codes, and
// whether there are more. An empty code starts from the first.
func (d *DB) Coupons(ctx context.Context, workspace, after string, limit int) (page []Coupon, more bool, err error) {
	rows, err := d.reader.QueryContext(ctx, couponColumns+`WHERE workspace_id = ? AND code > ? ORDER BY code LIMIT ?`,
		workspace, after, limit+1)
	err = collect(rows, err, func() error {
		c, err := scanCoupon(rows)
		page = append(page, c)
		return err
	})
	page, more = trimPage(page, limit)
	return page, more, explain(err)
}

// UseCoupon returns the coupon with that code in the session's workspace if judge returns nil for
// it. If its uses are limited, the session then holds one of them, however often it asks, and
// concurrent uses never exceed the limit. UseCoupon returns ErrNotFound, ErrUsedUp or the error of
// judge; then nothing was used. It may call judge twice.
func (d *DB) UseCoupon(ctx context.Context, s Session, code string, now time.Time, judge func(Coupon) error) (c Coupon, err error) {
	var held bool
	err = d.read(ctx, func(tx *sql.Tx) error { // most requests need no new use and no write lock
		c, held, err = usable(ctx, tx, s, code, judge)
		return err
	})
	if err != nil || held || c.MaxUses == 0 {
		return c, err
	}
	err = d.visit(ctx, s.ID, func(v *visit) error {
		c, held, err = usable(ctx, v.Tx, s, code, judge) // it may have changed since the read
		if err != nil || held || c.MaxUses == 0 {
			return err
		}
		v.rows = charge(redemptionCharge, len(code))
		_, err = v.ExecContext(ctx, `INSERT INTO redemptions (session_id, code, created_at) VALUES (?, ?, ?)`, s.ID, code, toMillis(now))
		if err != nil {
			return err
		}
		c.Uses++
		_, err = v.ExecContext(ctx, `UPDATE coupons SET uses = uses + 1 WHERE workspace_id = ? AND code = ?`, s.Workspace, code)
		return err
	})
	return c, err
}

// usable returns the coupon with that code if the session may use it, and whether the session holds
// a use of it already. It returns sql.ErrNoRows, ErrUsedUp or the error of judge.
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
		c.Starts = fromMillis(starts.Int64)
	}
	if ends.Valid {
		c.Ends = fromMillis(ends.Int64)
	}
	c.Updated = fromMillis(updated)
	return c, err
}
