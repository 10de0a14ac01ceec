package sample

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

const (
	mostCode  = 64
	mostMoney = 1_000_000_000_000 // minor units
)

var (
	couponCode = regexp.MustCompile(`^[A-Z0-9][A-Z0-9_-]*$`)
	currency   = regexp.MustCompile(`^[A-Z]{3}$`)
)

// A coupon is how answers show one: a percentage or an amount.
type coupon struct {
	Code     string `json:"code"`
	Percent  int64  `json:"percent,omitempty"`
	Amount   int64  `json:"amount,omitempty"` // minor units
	Currency string `json:"currency,omitempty"`
	Updated  string `json:"updated_at"`
}

func showCoupon(c sqlite.Coupon) coupon {
	return coupon{c.Code, c.Percent, c.Amount, c.Currency, stamp(c.Updated)}
}

// putCoupons answers PUT /v1/wp/coupons. Rules that are not kept yet (dates, uses, a minimum) are unknown fields: a
// coupon must not be stored as if they held.
func (b *Backend) putCoupons(r *request) error {
	items, err := bulk(r, func(f *form) (sqlite.Coupon, string) {
		c := sqlite.Coupon{Code: codeOf(f), Currency: f.line("currency", 0, 3)}
		var percent, amount bool
		c.Percent, percent = f.integer("percent", 1, 100)
		c.Amount, amount = f.integer("amount", 1, mostMoney)
		if len(f.problems) == 0 && percent == amount {
			f.problem("want one of the fields \"percent\" and \"amount\"")
		}
		if c.Currency != "" && !currency.MatchString(c.Currency) {
			f.problem("field \"currency\" is %s: want three capital letters like EUR", show(c.Currency))
		}
		if c.Currency != "" && percent {
			f.problem("field \"currency\" goes with \"amount\", a percentage has none")
		}
		return c, c.Code
	})
	if err != nil {
		return err
	}
	done, err := b.db.PutCoupons(r.Context(), r.token.Workspace, items, r.now)
	if err != nil {
		return err
	}
	return r.synced(done)
}

// codeOf reads the field code. People type it as they like, so its case does not matter.
func codeOf(f *form) string {
	code := strings.ToUpper(f.line("code", 1, mostCode))
	if code != "" && !couponCode.MatchString(code) {
		f.problem("field \"code\" is %s: want letters, digits, dashes and underscores", show(code))
	}
	return code
}

// listCoupons answers GET /v1/wp/coupons, in the order of the codes.
func (b *Backend) listCoupons(r *request) error {
	limit, err := r.limit(usualRows, mostItems)
	if err != nil {
		return err
	}
	rows, more, err := b.db.Coupons(r.Context(), r.token.Workspace, r.query.Get("after"), limit)
	if err != nil {
		return err
	}
	return r.answer(http.StatusOK, showPage(rows, more, showCoupon, func(c sqlite.Coupon) string { return c.Code }))
}

// applyCoupon answers POST /api/v1/widget/coupon/apply: what the code takes off, and off the total where one is given.
func (b *Backend) applyCoupon(r *request) error {
	f, err := r.form()
	if err != nil {
		return err
	}
	code := codeOf(f)
	total, priced := f.integer("total", 0, mostMoney)
	if err := check(f); err != nil {
		return err
	}
	c, err := b.db.Coupon(r.Context(), r.session.Workspace, code)
	if errors.Is(err, sqlite.ErrNotFound) {
		return refuse(http.StatusNotFound, "unknown coupon %s", show(code))
	}
	if err != nil {
		return err
	}
	answer := struct {
		Code     string `json:"code"`
		Percent  int64  `json:"percent,omitempty"`
		Amount   int64  `json:"amount,omitempty"`
		Currency string `json:"currency,omitempty"`
		Total    *int64 `json:"total,omitempty"`    // before
		Discount *int64 `json:"discount,omitempty"` // off the total, never more than it
	}{Code: c.Code, Percent: c.Percent, Amount: c.Amount, Currency: c.Currency}
	if priced {
		discount := discount(c, total)
		answer.Total, answer.Discount = &total, &discount
	}
	return r.answer(http.StatusOK, answer)
}

// discount is what c takes off total, in minor units. Fractions stay with the seller.
func discount(c sqlite.Coupon, total int64) int64 {
	if c.Percent > 0 {
		return total * c.Percent / 100
	}
	return min(c.Amount, total)
}
