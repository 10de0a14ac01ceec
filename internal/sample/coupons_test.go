package sample

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// coupon puts one coupon of code X, percent 10 unless the fields say otherwise.
func (k *bench) coupon(fields string) reply {
	k.Helper()
	if !strings.Contains(fields, `"amount"`) {
		fields += `,"percent":10`
	}
	return k.sync("PUT coupons", `{"items":[{"code":"X",`+strings.TrimPrefix(fields, ",")+`}]}`)
}

// Times with different offsets are one instant. A coupon is valid from its first millisecond until
// just before its last.
func TestACouponIsValidFromItsStartToBeforeItsEnd(t *testing.T) {
	k := setUp(t) // at 2026-03-01T12:00:00Z
	k.coupon(`"starts_at":"2026-03-01T14:00:00.5+01:00","ends_at":"2026-03-01T09:00:01.0009-05:00"`).want(200)
	k.sync("GET coupons", "").says("items.0.starts_at", "2026-03-01T13:00:00.500Z").says("items.0.ends_at", "2026-03-01T14:00:01.000Z")
	for _, c := range []struct {
		until  time.Duration // since noon
		status int
		says   string
	}{
		{0, 422, "not valid yet: it is from 2026-03-01T13:00:00.500Z on"},
		{time.Hour + 499*time.Millisecond, 422, "not valid yet"},
		{time.Hour + 500*time.Millisecond - 1, 422, "not valid yet"},
		{time.Hour + 500*time.Millisecond, 200, ""},
		{2*time.Hour + 999*time.Millisecond, 200, ""},
		{2*time.Hour + 1000*time.Millisecond - 1, 200, ""},
		{2*time.Hour + 1000*time.Millisecond, 410, "has ended: it was valid until 2026-03-01T14:00:01.000Z"},
		{3 * time.Hour, 410, "has ended"},
	} {
		k.clock.pass(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(c.until).Sub(k.clock.now()))
		a := k.widget("POST coupon/apply", `{"code":"x"}`)
		if c.status == 200 {
			a.want(200)
			continue
		}
		a.wantError(c.status, map[int]string{410: "gone", 422: "unprocessable"}[c.status], `"X"`, c.says)
	}
}

// The rules are checked in order, and the answer names the first that is violated.
func TestACouponsRulesAreHeldInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		coupon, purchase string
		status           int
		says             string
	}{
		"the minimum is met":             {`"minimum":5000`, `"total":5000`, 200, ""},
		"one short of the minimum":       {`"minimum":5000`, `"total":4999`, 422, "a total of 5000 minor units or more, this one is 4999"},
		"nothing of the minimum":         {`"minimum":1`, `"total":0`, 422, "this one is 0"},
		"the largest minimum":            {`"minimum":1000000000000`, `"total":1000000000000`, 200, ""},
		"a minimum without a total":      {`"minimum":5000,"currency":"EUR"`, ``, 422, `5000 minor units of EUR or more: send the field \"total\"`},
		"the same currency":              {`"amount":5,"currency":"EUR"`, `"total":9,"currency":"EUR"`, 200, ""},
		"no currency is asked":           {`"amount":5,"currency":"EUR"`, `"total":9`, 200, ""},
		"no currency is set":             {`"amount":5`, `"total":9,"currency":"USD"`, 200, ""},
		"another currency":               {`"amount":5,"currency":"EUR"`, `"total":9,"currency":"USD"`, 422, "is in EUR, the total in USD"},
		"a percentage of a minimum's":    {`"minimum":5,"currency":"EUR"`, `"total":9,"currency":"USD"`, 422, "is in EUR, the total in USD"},
		"currency before minimum":        {`"minimum":5,"currency":"EUR"`, `"currency":"USD"`, 422, "is in EUR"},
		"the start before everything":    {`"starts_at":"2026-03-01T12:00:00.001Z","minimum":5,"currency":"EUR"`, `"currency":"USD"`, 422, "not valid yet"},
		"the end before currency":        {`"ends_at":"2026-03-01T12:00:00Z","minimum":5,"currency":"EUR"`, `"currency":"USD"`, 410, "has ended"},
		"an end that lies in the past":   {`"ends_at":"1970-01-01T00:00:00Z"`, ``, 410, "until 1970-01-01T00:00:00.000Z"},
		"the last instant there is":      {`"ends_at":"9999-12-31T23:59:59.999Z"`, ``, 200, ""},
		"a null is as good as no field":  {`"starts_at":null,"ends_at":null,"minimum":null,"max_uses":null,"currency":null`, ``, 200, ""},
		"a total that the amount covers": {`"amount":5000,"minimum":100`, `"total":100`, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := setUp(t)
			k.coupon(c.coupon).want(200)
			a := k.widget("POST coupon/apply", strings.ReplaceAll(`{"code":"X",`+c.purchase+`}`, ",}", "}"))
			if c.status == 200 {
				a.want(200)
				return
			}
			if a.status != c.status || !strings.Contains(string(a.body), c.says) {
				t.Errorf("the answer is %d %s, want %d and %q", a.status, a.body, c.status, c.says)
			}
		})
	}
}

// Discounts are integers, rounded down, and never exceed the total.
func TestADiscountIsExact(t *testing.T) {
	k := setUp(t)
	for _, c := range []struct {
		coupon          string
		total, discount int64
	}{
		{`"percent":1`, 99, 0},
		{`"percent":1`, 100, 1},
		{`"percent":33`, 10, 3},
		{`"percent":99`, 1, 0},
		{`"percent":100`, 1, 1},
		{`"percent":100`, 1_000_000_000_000, 1_000_000_000_000},
		{`"percent":99`, 999_999_999_999, 989_999_999_999},
		{`"percent":7`, 0, 0},
		{`"amount":1000000000000`, 999_999_999_999, 999_999_999_999},
		{`"amount":1`, 0, 0},
		{`"amount":500`, 500, 500},
	} {
		k.sync("PUT coupons", `{"items":[{"code":"X",`+c.coupon+`}]}`).want(200)
		k.widget("POST coupon/apply", fmt.Sprintf(`{"code":"X","total":%d}`, c.total)).want(200).
			says("total", float64(c.total)).says("discount", float64(c.discount))
	}
}

func TestABadCouponIsNamedByItsIndex(t *testing.T) {
	k := setUp(t)
	for _, c := range []struct{ fields, reason string }{
		{`"starts_at":"2026-03-01T12:00:00"`, `"starts_at" is "2026-03-01T12:00:00": expected a time from 1970 to 9999 in RFC 3339, with its offset`},
		{`"starts_at":"2026-03-01"`, "RFC 3339"},
		{`"starts_at":"2026-03-01 12:00:00Z"`, "RFC 3339"},
		{`"starts_at":"2026-02-29T12:00:00Z"`, "RFC 3339"},
		{`"starts_at":"2026-03-01T24:00:00Z"`, "RFC 3339"},
		{`"starts_at":"2026-03-01T1:00:00Z"`, "RFC 3339"},
		{`"starts_at":"2026-03-01T12:00:00,5Z"`, "RFC 3339"},
		{`"starts_at":"2026-03-01T12:00:00+0100"`, "RFC 3339"},
		{`"starts_at":"2026-03-01T12:00:00+24:00"`, "RFC 3339"},
		{`"starts_at":"2026-03-01T12:00:00+01:60"`, "RFC 3339"},
		{`"starts_at":"2016-12-31T23:59:60Z"`, "2016-12-31T23:59:60Z"}, // a leap second
		{`"ends_at":"10000-01-01T00:00:00Z"`, "1970 to 9999"},
		{`"ends_at":"9999-12-31T23:59:59-00:01"`, "1970 to 9999"}, // in UTC it is the year 10000
		{`"starts_at":"1970-01-01T00:00:00+00:01"`, "1970 to 9999"},
		{`"ends_at":"0001-01-01T00:00:00Z"`, "1970 to 9999"},
		{`"ends_at":""`, `"ends_at" is ""`},
		{`"ends_at":1772366400`, `"ends_at" is a number`},
		{`"ends_at":"\ud800"`, `"ends_at" is`},
		{`"starts_at":"2026-03-01T12:00:00Z","ends_at":"2026-03-01T13:00:00+01:00"`, "must end after it starts"},
		// both are in one millisecond
		{`"starts_at":"2026-03-01T12:00:00.0001Z","ends_at":"2026-03-01T12:00:00.0009Z"`, "must end after it starts"},
		{`"minimum":0`, `"minimum" is "0": expected a whole number from 1 to 1000000000000`},
		{`"minimum":1000000000001`, `"minimum" is "1000000000001"`},
		{`"minimum":5.5`, `"minimum" is "5.5"`},
		{`"max_uses":0`, `"max_uses" is "0": expected a whole number from 1 to 1000000000`},
		{`"max_uses":1000000001`, `"max_uses" is`},
		{`"max_uses":-1`, `"max_uses" is "-1"`},
		{`"currency":"EUR"`, `"currency" goes with "amount" or "minimum"`},
		{`"minimum":5,"currency":"eur"`, `"currency" is "eur"`},
		{`"uses":0`, `unknown field "uses"`},
	} {
		body := `{"items":[{"code":"GOOD","percent":5},{"code":"X","percent":5,` + c.fields + `}]}`
		a := k.sync("PUT coupons", body).wantError(422, "unprocessable", "item 1", "nothing was stored").says("error.items.0.index", 1.0).says("error.items.0.id", "X")
		if reason := a.text("error.items.0.reason"); !strings.Contains(reason, c.reason) {
			t.Errorf("%s: the reason is %q, want %q", c.fields, reason, c.reason)
		}
		if n := len(a.at("error.items").([]any)); n != 1 {
			t.Errorf("%s: %d problems are named, want one: %s", c.fields, n, a.body)
		}
	}
	if n := k.rows("coupons"); n != 0 {
		t.Errorf("%d coupons were stored of refused requests", n)
	}
}

func TestASyncThatSaysTheSameChangesNothing(t *testing.T) {
	k := setUp(t)
	const all = `"starts_at":"2026-03-01T12:00:00Z","ends_at":"2026-04-01T12:00:00Z","minimum":100,"currency":"EUR","max_uses":3`
	k.coupon(all).want(200).says("created", 1.0)
	k.widget("POST coupon/apply", `{"code":"X","total":100}`).want(200)
	k.clock.pass(time.Second)
	k.coupon(`"starts_at":"2026-03-01T13:00:00+01:00","ends_at":"2026-04-01T12:00:00.0000Z","minimum":100,"currency":"EUR","max_uses":3`).
		want(200).says("unchanged", 1.0)
	k.sync("GET coupons", "").says("items.0.updated_at", "2026-03-01T12:00:00.000Z").says("items.0.uses", 1.0).says("items.0.max_uses", 3.0).
		says("items.0.minimum", 100.0).says("items.0.currency", "EUR")
	for _, other := range []string{
		strings.Replace(all, "03-01", "02-01", 1), strings.Replace(all, "04-01", "05-01", 1), strings.Replace(all, "100", "101", 1),
		strings.Replace(all, "EUR", "USD", 1), strings.Replace(all, ":3", ":4", 1), `"max_uses":4`,
	} {
		k.coupon(other).want(200).says("updated", 1.0)
	}
	// a sync replaces everything
	k.sync("GET coupons", "").says("items.0.uses", 1.0).says("items.0.starts_at", nil).says("items.0.minimum", nil)
}

// A session uses a coupon once, and a refusal uses none. Uses are kept, whatever the workspace
// syncs later.
func TestASessionUsesACouponOnce(t *testing.T) {
	k := setUp(t)
	uses := func(want float64) {
		t.Helper()
		k.sync("GET coupons", "").want(200).says("items.0.uses", want)
	}
	second, third := k.visitor("demo"), k.visitor("demo")
	apply := func(session string) reply {
		return k.send("POST /api/v1/widget/coupon/apply", session, `{"code":"x","total":1000}`)
	}
	k.coupon(``).want(200)
	apply(k.session).want(200)
	uses(0) // uses are counted only if they are limited

	k.coupon(`"max_uses":2,"minimum":1001`).want(200)
	apply(k.session).wantError(422, "unprocessable")
	uses(0)

	k.coupon(`"max_uses":2`).want(200)
	apply(k.session).want(200)
	apply(k.session).want(200) // a reload of the page
	uses(1)
	apply(second).want(200)
	uses(2)
	told := apply(third).wantError(410, "gone", `coupon "X" is used up`)
	if strings.Contains(string(told.body), "2") {
		t.Errorf("the answer shows a visitor how many used it: %s", told.body)
	}
	apply(k.session).want(200) // it has a use already
	uses(2)

	k.coupon(`"max_uses":1`).want(200).says("updated", 1.0) // fewer than there were
	apply(third).wantError(410, "gone")
	apply(second).want(200)
	uses(2)
	k.coupon(`"max_uses":3`).want(200)
	apply(third).want(200)
	uses(3)
	k.coupon(`"max_uses":3,"ends_at":"2026-03-01T12:00:00Z"`).want(200)
	apply(second).wantError(410, "gone", "has ended") // a use no longer helps
}

// With two servers on one data directory and more visitors than uses, exactly the limit of uses is
// given out.
func TestACouponIsUsedExactlyAsOftenAsItMay(t *testing.T) {
	const visitors, most = 40, 13
	k := setUpWith(t, Options{BusyTimeout: time.Minute})
	other := *k
	other.b = k.open(Options{Dir: k.dir, BusyTimeout: time.Minute})
	k.coupon(fmt.Sprintf(`"max_uses":%d`, most)).want(200)
	sessions := make([]string, visitors)
	for i := range sessions {
		sessions[i] = k.visitor("demo")
	}
	apply := func(k *bench, session string) int {
		r := httptest.NewRequestWithContext(context.Background(), "POST", "/api/v1/widget/coupon/apply", strings.NewReader(`{"code":"X"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", session)
		return k.do(r).status
	}
	// each visitor asks both servers at once
	first, again := make([]int, visitors), make([]int, visitors)
	var group sync.WaitGroup
	for i, session := range sessions {
		group.Go(func() { first[i] = apply(k, session) })
		group.Go(func() { again[i] = apply(&other, session) })
	}
	group.Wait()
	held := map[int]int{}
	for i := range sessions {
		if first[i] != again[i] {
			t.Errorf("visitor %d gets %d from one server and %d from the other", i, first[i], again[i])
		}
		held[first[i]]++
	}
	if held[200] != most || held[410] != visitors-most {
		t.Errorf("the visitors got %v, want %d times 200 and %d times 410", held, most, visitors-most)
	}
	k.sync("GET coupons", "").says("items.0.uses", float64(most))
	if n := k.rows("redemptions"); n != most {
		t.Errorf("%d sessions hold a use, want %d", n, most)
	}
}
