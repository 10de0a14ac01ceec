package sqlite

import (
	"context"
	"database/sql"
	"time"
)

// A Coupon takes a percentage or an amount off.
type Coupon struct {
	Code     string // upper case
	Percent  int64  // 1 to 100, or 0
	Amount   int64  // minor units, or 0
	Currency string // of the amount; may be empty
	Updated  time.Time
}

// PutCoupons creates or replaces every coupon by its code, or none. Repeating it changes nothing.
func (d *DB) PutCoupons(ctx context.Context, workspace string, coupons []Coupon, now time.Time) (s Synced, err error) {
	err = d.write(ctx, func(tx *sql.Tx) error {
		upsert, err := tx.PrepareContext(ctx, `
			INSERT INTO coupons (workspace_id, code, percent, amount, currency, updated_at)
			VALUES (?, ?, nullif(?, 0), nullif(?, 0), ?, ?)
			ON CONFLICT (workspace_id, code) DO UPDATE
			SET percent = excluded.percent, amount = excluded.amount, currency = excluded.currency,
			    updated_at = excluded.updated_at, version = version + 1
			WHERE (percent, amount, currency) IS NOT (excluded.percent, excluded.amount, excluded.currency)
			RETURNING version`)
		if err != nil {
			return err
		}
		defer upsert.Close()
		for _, c := range coupons {
			row := upsert.QueryRowContext(ctx, workspace, c.Code, c.Percent, c.Amount, maybe(c.Currency), moment(now))
			if err := s.count(row); err != nil {
				return err
			}
		}
		return nil
	})
	return s, err
}

const couponColumns = `
	SELECT code, coalesce(percent, 0), coalesce(amount, 0), coalesce(currency, ''), updated_at FROM coupons `

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

// Coupon returns the workspace's coupon of that code. ErrNotFound.
func (d *DB) Coupon(ctx context.Context, workspace, code string) (Coupon, error) {
	c, err := scanCoupon(d.reader.QueryRowContext(ctx, couponColumns+`WHERE workspace_id = ? AND code = ?`, workspace, code))
	return c, explain(err)
}

func scanCoupon(row interface{ Scan(...any) error }) (c Coupon, err error) {
	var updated int64
	err = row.Scan(&c.Code, &c.Percent, &c.Amount, &c.Currency, &updated)
	c.Updated = instant(updated)
	return c, err
}
