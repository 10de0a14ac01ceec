package sample

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

const (
	mostCode  = 64
	mostMoney = 1_000_000_000_000 // minor units
	mostUses  = 1_000_000_000
)

var (
	couponCode = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)
	currency   = regexp.MustCompile(`^[A-Z]{3}$`)
)

// A coupon is how the workspace is shown one: a percentage or an amount, and what it asks for.
type coupon struct {
	Code     string `json:"code"`
	Percent  int64  `json:"percent,omitempty"`
	Amount   int64  `json:"amount,omitempty"` // minor units
	Currency string `json:"currency,omitempty"`
	Starts   string `json:"starts_at,omitempty"`
	Ends     string `json:"ends_at,omitempty"`
	Minimum  int64  `json:"minimum,omitempty"` // minor units
	MaxUses  int64  `json:"max_uses,omitempty"`
	Uses     int64  `json:"uses"` // sessions, counted while there is a max_uses
	Updated  string `json:"updated_at"`
}

func showCoupon(c sqlite.Coupon) coupon {
	shown := coupon{Code: c.Code, Percent: c.Percent, Amount: c.Amount, Currency: c.Currency,
		Minimum: c.Minimum, MaxUses: c.MaxUses, Uses: c.Uses, Updated: stamp(c.Updated)}
	if !c.Starts.IsZero() {
		shown.Starts = stamp(c.Starts)
	}
	if !c.Ends.IsZero() {
		shown.Ends = stamp(c.Ends)
	}
	return shown
}

// putCoupons answers PUT /v1/wp/coupons. A coupon that has ended is stored like any other: a sync says what there is.
func (b *Backend) putCoupons(r *request) error {
	items, err := bulk(r, readCoupon)
	if err != nil {
		return err
	}
	done, err := b.db.PutCoupons(r.Context(), r.token.Workspace, items, r.now)
	if err != nil {
		return err
	}
	return r.synced(done)
}

func readCoupon(f *form) (c sqlite.Coupon, id string) {
	c = sqlite.Coupon{
		Code:     codeOf(f),
		Currency: currencyOf(f),
		Starts:   f.instant("starts_at"),
		Ends:     f.instant("ends_at"),
	}
	var percent, amount bool
	c.Percent, percent = f.integer("percent", 1, 100)
	c.Amount, amount = f.integer("amount", 1, mostMoney)
	c.Minimum, _ = f.integer("minimum", 1, mostMoney)
	c.MaxUses, _ = f.integer("max_uses", 1, mostUses)
	if len(f.problems) > 0 {
		return c, c.Code // what follows compares fields that are right by themselves
	}
	if percent == amount {
		f.problem("want one of the fields \"percent\" and \"amount\"")
	}
	if c.Currency != "" && c.Amount == 0 && c.Minimum == 0 {
		f.problem("field \"currency\" goes with \"amount\" or \"minimum\", a percentage has none")
	}
	if !c.Starts.IsZero() && !c.Ends.IsZero() && !c.Ends.After(c.Starts) {
		f.problem("field \"ends_at\" is %s, \"starts_at\" is %s: it must end after it starts", stamp(c.Ends), stamp(c.Starts))
	}
	return c, c.Code
}

// codeOf reads the field code. People type it as they like, so its case does not matter.
func codeOf(f *form) string {
	code := f.line("code", 1, mostCode)
	if code != "" && !couponCode.MatchString(code) { // as it was typed: the upper case of "ſ" and "ı" is an ASCII letter
		f.problem("field \"code\" is %s: want letters from A to Z, digits, dashes and underscores, a letter or digit first", show(code))
	}
	return strings.ToUpper(code)
}

// currencyOf reads the field currency, which may be absent.
func currencyOf(f *form) string {
	code := f.line("currency", 0, 3)
	if code != "" && !currency.MatchString(code) {
		f.problem("field \"currency\" is %s: want three capital letters like EUR", show(code))
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

// A purchase is what a visitor wants a coupon for.
type purchase struct {
	total    int64  // minor units
	priced   bool   // a total was given
	currency string // empty: not given
}

// applyCoupon answers POST /api/v1/widget/coupon/apply: what the code takes off, and off the total where one is given. A
// session uses a coupon once, however often it applies it: a reload of the page eats no second use.
func (b *Backend) applyCoupon(r *request) error {
	f, err := r.form()
	if err != nil {
		return err
	}
	code := codeOf(f)
	p := purchase{currency: currencyOf(f)}
	p.total, p.priced = f.integer("total", 0, mostMoney)
	if err := check(f); err != nil {
		return err
	}
	c, err := b.db.UseCoupon(r.Context(), r.session, code, r.now, func(c sqlite.Coupon) error { return objection(c, p, r.now) })
	switch {
	case errors.Is(err, sqlite.ErrNotFound):
		return refuse(http.StatusNotFound, "unknown coupon %s", show(code))
	case errors.Is(err, sqlite.ErrUsedUp):
		return refuse(http.StatusGone, "coupon %s is used up", show(code))
	case err != nil:
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
	if p.priced {
		discount := discount(c, p.total)
		answer.Total, answer.Discount = &p.total, &discount
	}
	return r.answer(http.StatusOK, answer)
}

// objection is what speaks against c for a purchase at now; nil: nothing, so long as it is not used up. It tells the
// visitor how to meet the coupon's rules, and nothing of others who used it.
func objection(c sqlite.Coupon, p purchase, now time.Time) error {
	switch {
	case now.Before(c.Starts):
		return refuse(http.StatusUnprocessableEntity, "coupon %s is not valid yet: it is from %s on", show(c.Code), stamp(c.Starts))
	case !c.Ends.IsZero() && !now.Before(c.Ends):
		return refuse(http.StatusGone, "coupon %s has ended: it was valid until %s", show(c.Code), stamp(c.Ends))
	case c.Currency != "" && p.currency != "" && c.Currency != p.currency:
		return refuse(http.StatusUnprocessableEntity, "coupon %s is in %s, the total in %s", show(c.Code), c.Currency, p.currency)
	case c.Minimum > 0 && !p.priced:
		return refuse(http.StatusUnprocessableEntity, "coupon %s is for a total of %s or more: send the field \"total\"", show(c.Code), money(c.Minimum, c.Currency))
	case p.total < c.Minimum:
		return refuse(http.StatusUnprocessableEntity, "coupon %s is for a total of %s or more, this one is %d", show(c.Code), money(c.Minimum, c.Currency), p.total)
	}
	return nil
}

// money tells an amount: how many decimals a currency has is not ours to know.
func money(minor int64, currency string) string {
	if currency == "" {
		return fmt.Sprintf("%d minor units", minor)
	}
	return fmt.Sprintf("%d minor units of %s", minor, currency)
}

// discount is what c takes off total, in minor units. Fractions stay with the seller. The product of the largest total
// and 100 is far from the end of an int64.
func discount(c sqlite.Coupon, total int64) int64 {
	if c.Percent > 0 {
		return total * c.Percent / 100
	}
	return min(c.Amount, total)
}
