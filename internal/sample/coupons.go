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
	maxCode  = 64
	maxMoney = 1_000_000_000_000 // minor units
	maxUses  = 1_000_000_000
)

var (
	couponCode = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)
	currency   = regexp.MustCompile(`^[A-Z]{3}$`)
)

// A coupon is the JSON of a coupon on the bulk-sync surface.
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
		Minimum: c.Minimum, MaxUses: c.MaxUses, Uses: c.Uses, Updated: formatTime(c.Updated)}
	if !c.Starts.IsZero() {
		shown.Starts = formatTime(c.Starts)
	}
	if !c.Ends.IsZero() {
		shown.Ends = formatTime(c.Ends)
	}
	return shown
}

// putCoupons handles PUT /v1/wp/coupons. It also stores coupons that have ended, because a sync
// describes what exists.
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
	c.Amount, amount = f.integer("amount", 1, maxMoney)
	c.Minimum, _ = f.integer("minimum", 1, maxMoney)
	c.MaxUses, _ = f.integer("max_uses", 1, maxUses)
	if len(f.problems) > 0 {
		return c, c.Code // the checks below compare valid fields
	}
	if percent == amount {
		f.problem("expected one of the fields \"percent\" and \"amount\"")
	}
	if c.Currency != "" && c.Amount == 0 && c.Minimum == 0 {
		f.problem("field \"currency\" goes with \"amount\" or \"minimum\", a percentage has none")
	}
	if !c.Starts.IsZero() && !c.Ends.IsZero() && !c.Ends.After(c.Starts) {
		f.problem("field \"ends_at\" is %s, \"starts_at\" is %s: it must end after it starts", formatTime(c.Ends), formatTime(c.Starts))
	}
	return c, c.Code
}

// codeOf reads the field code, whose case does not matter.
func codeOf(f *form) string {
	code := f.line("code", 1, maxCode)
	// ToUpper comes after this check, because it makes ASCII letters of "ſ" and "ı".
	if code != "" && !couponCode.MatchString(code) {
		f.problem("field \"code\" is %s: expected letters from A to Z, digits, dashes and underscores, a letter or digit first", show(code))
	}
	return strings.ToUpper(code)
}

// currencyOf reads the field currency, which may be absent.
func currencyOf(f *form) string {
	code := f.line("currency", 0, 3)
	if code != "" && !currency.MatchString(code) {
		f.problem("field \"currency\" is %s: expected three capital letters like EUR", show(code))
	}
	return code
}

// listCoupons handles GET /v1/wp/coupons, in the order of the codes.
func (b *Backend) listCoupons(r *request) error {
	limit, err := r.limit(defaultRows, maxItems)
	if err != nil {
		return err
	}
	rows, more, err := b.db.Coupons(r.Context(), r.token.Workspace, r.query.Get("after"), limit)
	if err != nil {
		return err
	}
	return r.answer(http.StatusOK, showPage(rows, more, showCoupon, func(c sqlite.Coupon) string { return c.Code }))
}

// A purchase is what a visitor applies a coupon to.
type purchase struct {
	total    int64  // minor units
	priced   bool   // whether a total was given
	currency string // empty if not given
}

// applyCoupon handles POST /api/v1/widget/coupon/apply. It answers the discount of the code, and,
// with a total, its amount. A session uses a coupon once, however often it applies it, so a reload
// of the page costs no second use.
func (b *Backend) applyCoupon(r *request) error {
	f, err := r.form()
	if err != nil {
		return err
	}
	code := codeOf(f)
	p := purchase{currency: currencyOf(f)}
	p.total, p.priced = f.integer("total", 0, maxMoney)
	if err := check(f); err != nil {
		return err
	}
	c, err := b.db.UseCoupon(r.Context(), r.session, code, r.now, func(c sqlite.Coupon) error { return checkPurchase(c, p, r.now) })
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
		Discount *int64 `json:"discount,omitempty"` // at most the total
	}{Code: c.Code, Percent: c.Percent, Amount: c.Amount, Currency: c.Currency}
	if p.priced {
		discount := discount(c, p.total)
		answer.Total, answer.Discount = &p.total, &discount
	}
	return r.answer(http.StatusOK, answer)
}

// checkPurchase refuses a purchase at now that does not meet the coupon's rules, apart from its max
// uses. The message tells the visitor how to meet them, and nothing about others who used the
// coupon.
func checkPurchase(c sqlite.Coupon, p purchase, now time.Time) error {
	switch {
	case now.Before(c.Starts):
		return refuse(http.StatusUnprocessableEntity, "coupon %s is not valid yet: it is from %s on", show(c.Code), formatTime(c.Starts))
	case !c.Ends.IsZero() && !now.Before(c.Ends):
		return refuse(http.StatusGone, "coupon %s has ended: it was valid until %s", show(c.Code), formatTime(c.Ends))
	case c.Currency != "" && p.currency != "" && c.Currency != p.currency:
		return refuse(http.StatusUnprocessableEntity, "coupon %s is in %s, the total in %s", show(c.Code), c.Currency, p.currency)
	case c.Minimum > 0 && !p.priced:
		return refuse(http.StatusUnprocessableEntity, "coupon %s is for a total of %s or more: send the field \"total\"", show(c.Code), formatAmount(c.Minimum, c.Currency))
	case p.total < c.Minimum:
		return refuse(http.StatusUnprocessableEntity, "coupon %s is for a total of %s or more, this one is %d", show(c.Code), formatAmount(c.Minimum, c.Currency), p.total)
	}
	return nil
}

// formatAmount formats an amount. It does not convert minor units, because the number of decimals
// depends on the currency.
func formatAmount(minor int64, currency string) string {
	if currency == "" {
		return fmt.Sprintf("%d minor units", minor)
	}
	return fmt.Sprintf("%d minor units of %s", minor, currency)
}

// discount returns what c takes off total, in minor units, rounded down. The product of the max
// total and 100 fits an int64.
func discount(c sqlite.Coupon, total int64) int64 {
	if c.Percent > 0 {
		return total * c.Percent / 100
	}
	return min(c.Amount, total)
}
