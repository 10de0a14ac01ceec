package sample

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func documents(n int, text string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(`{"id":"post-%03d","title":"Post %d","url":"https://example.org/%d","text":%q}`, i, i, i, text)
	}
	return `{"items":[` + strings.Join(items, ",") + `]}`
}

func TestARepeatedSyncChangesNothing(t *testing.T) {
	k := setUp(t)
	k.sync("PUT documents", documents(500, "one")).want(200).says("created", 500.0).says("updated", 0.0).says("unchanged", 0.0)
	first := k.sync("GET documents?limit=500", "").want(200)
	k.clock.pass(time.Hour)
	k.sync("PUT documents", documents(500, "one")).want(200).says("created", 0.0).says("updated", 0.0).says("unchanged", 500.0)
	if again := k.sync("GET documents?limit=500", ""); string(again.body) != string(first.body) {
		t.Error("a repeated sync changed what is stored")
	}
	k.sync("PUT documents", documents(2, "two")).want(200).says("created", 0.0).says("updated", 2.0)
	k.sync("GET documents?limit=2", "").want(200).says("items.0.text", "two").says("items.0.updated_at", "2026-03-01T13:00:00.000Z")
	k.sync("PUT documents", `{"items":[]}`).want(200).says("unchanged", 0.0)
	k.sync("GET status", "").want(200).says("documents", 500.0)

	k.sync("PUT coupons", `{"items":[{"code":"A","percent":1},{"code":"b","amount":2}]}`).want(200).says("created", 2.0)
	k.sync("PUT coupons", `{"items":[{"code":"a","percent":1},{"code":"B","amount":3}]}`).want(200).says("unchanged", 1.0).says("updated", 1.0)
	k.sync("GET coupons", "").want(200).says("items.0.code", "A").says("items.1.amount", 3.0).says("next", nil)
}

func TestDocumentsArePagedByCursorWhileTheyChange(t *testing.T) {
	k := setUp(t)
	k.sync("PUT documents", documents(250, "")).want(200)
	seen := map[string]int{}
	after := ""
	for {
		page := k.sync("GET documents?after="+after, "").want(200)
		for _, item := range page.at("items").([]any) {
			seen[item.(map[string]any)["id"].(string)]++
		}
		if page.at("next") == nil {
			break
		}
		after = page.text("next")
		// the cursor's own document is deleted
		k.sync("DELETE documents", `{"items":[{"id":"`+after+`"}]}`).want(200)
	}
	if len(seen) != 250 {
		t.Errorf("the pages hold %d documents, want all 250", len(seen))
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("the pages hold %s %d times", id, n)
		}
	}
}

func TestDeletingIsIdempotent(t *testing.T) {
	k := setUp(t)
	k.sync("PUT documents", documents(3, "x")).want(200)
	body := `{"items":[{"id":"post-000"},{"id":"post-002"},{"id":"never"}]}`
	k.sync("DELETE documents", body).want(200).says("deleted", 2.0)
	k.sync("DELETE documents", body).want(200).says("deleted", 0.0)
	k.sync("GET documents", "").want(200).says("items.0.id", "post-001")
}

// 499 good items and a bad one: nothing is applied, and the bad one is named.
func TestOneBadItemAmong500StoresNothing(t *testing.T) {
	k := setUp(t)
	k.sync("PUT documents", documents(3, "old")).want(200)
	for reason, item := range map[string]string{
		`"title" is missing`:                       `{"id":"bad","url":"https://example.org"}`,
		`"title" is a number`:                      `{"id":"bad","title":5,"url":"https://example.org"}`,
		`"title" is empty`:                         `{"id":"bad","title":" ","url":"https://example.org"}`,
		`"title" has 501 bytes`:                    `{"id":"bad","title":"` + strings.Repeat("x", 501) + `","url":"https://example.org"}`,
		`control character U+0000 at byte 1`:       `{"id":"bad","title":"T","url":"https://example.org","text":"a\u0000"}`,
		`"url" is "javascript:alert(1)"`:           `{"id":"bad","title":"T","url":"javascript:alert(1)"}`,
		`"url" is "https://a.example:99999/"`:      `{"id":"bad","title":"T","url":"https://a.example:99999/"}`,
		`"url" is "https://a.example/ x"`:          `{"id":"bad","title":"T","url":"https://a.example/ x"}`,
		`"url" is "https://a.example/\u202e"`:      `{"id":"bad","title":"T","url":"https://a.example/\u202e"}`,
		`"url" is "/relative"`:                     `{"id":"bad","title":"T","url":"/relative"}`,
		`unknown field "titel": allowed are "id",`: `{"id":"bad","title":"T","url":"https://example.org","titel":"T"}`,
		`unknown field "Text"`:                     `{"id":"bad","title":"T","url":"https://example.org","Text":"T"}`,
		`field "title" appears twice`:              `{"id":"bad","title":"T","url":"https://example.org","title":"U"}`,
		`half of a surrogate pair (\ud800)`:        `{"id":"bad","title":"\ud800","url":"https://example.org"}`,
		`expected an object in braces`:             `"bad"`,
		`the same id as item 0`:                    `{"id":"post-000","title":"T","url":"https://example.org"}`,
	} {
		t.Run(reason, func(t *testing.T) {
			body := strings.TrimSuffix(documents(499, "new"), "]}") + "," + item + "]}"
			a := k.in(t).sync("PUT documents", body).wantError(422, "unprocessable", "item 499", "nothing was stored")
			a.says("error.items.0.index", 499.0)
			if got := a.text("error.items.0.reason"); !strings.Contains(got, reason) {
				t.Errorf("the reason is %q, want %q", got, reason)
			}
			if n := len(a.at("error.items").([]any)); n != 1 {
				t.Errorf("%d items are named, want the bad one: %s", n, a.body)
			}
			if k.rows("documents") != 3 || k.rows("documents WHERE text = 'old'") != 3 {
				t.Error("some of the request was stored")
			}
		})
	}
}

func TestEveryProblemOfABulkRequestIsNamed(t *testing.T) {
	k := setUp(t)
	a := k.sync("PUT coupons", `{"items":[
		{"code":"GOOD","percent":10},
		{"code":"two words","percent":10},
		{"code":"BOTH","percent":10,"amount":5},
		{"code":"NONE"},
		{"code":"MUCH","percent":101},
		{"code":"HALF","percent":1.5},
		{"code":"CASH","percent":5,"currency":"EUR"},
		{"code":"LATE","percent":5,"expires_at":"2026-01-01T00:00:00Z"},
		{"percent":5,"currency":"euro"},
		{"code":"good","percent":11}]}`).wantError(422, "unprocessable")
	want := []string{"1 two words?", "2 BOTH", "3 NONE", "4 MUCH", "5 HALF", "6 CASH", "7 LATE", "8 ", "8 ", "9 GOOD"}
	items := a.at("error.items").([]any)
	if len(items) != len(want) {
		t.Fatalf("%d problems are named, want %d: %s", len(items), len(want), a.body)
	}
	for i, w := range want {
		index, _, _ := strings.Cut(w, " ")
		a.says(fmt.Sprintf("error.items.%d.index", i), float64(index[0]-'0'))
		if a.text(fmt.Sprintf("error.items.%d.reason", i)) == "" {
			t.Errorf("problem %d has no reason", i)
		}
	}
	a.says("error.items.9.id", "GOOD").says("error.items.3.id", "MUCH")
	if k.rows("coupons") != 0 {
		t.Error("some of the request was stored")
	}
}

func TestABulkRequestTakesAtMost500Items(t *testing.T) {
	k := setUp(t)
	k.sync("PUT documents", documents(501, "")).wantError(400, "invalid_request", "500")
	k.sync("PUT documents", `{"items":{}}`).wantError(400, "invalid_request", "items", "a list")
	k.sync("PUT documents", `{"items":null}`).wantError(400, "invalid_request", "items", "missing")
	k.sync("PUT documents", `{}`).wantError(400, "invalid_request", "items", "missing")
	k.sync("DELETE documents", `{"items":[{"id":"a","title":"x"}]}`).wantError(422, "unprocessable", "title")
}
