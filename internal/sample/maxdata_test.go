package sample

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fill syncs documents until there is no room for another, then sends leads of new visitors until
// there is no room for those, and returns the number of documents.
func (k *bench) fill() (stored int) {
	k.Helper()
	for ; ; stored++ {
		body := fmt.Sprintf(`{"items":[{"id":"fill-%d","title":"T","url":"https://example.org","text":%q}]}`, stored, strings.Repeat("words ", 3000))
		if a := k.sync("PUT documents", body); a.status != 200 {
			a.wantError(507, "storage_full", "nothing was stored")
			break
		}
	}
	for {
		a := k.send("POST /api/v1/widget/init", "", `{"agent_id":"demo"}`)
		if a.status != 201 {
			a.wantError(507, "storage_full", "nothing was stored")
			break
		}
		for visitor := "Bearer " + a.text("token"); ; {
			a := k.send("POST /api/v1/widget/leads", visitor, fmt.Sprintf(`{"email":"ann@example.org","note":%q}`, strings.Repeat("x", 3000)))
			if a.status != 201 {
				a.wantError(507, "storage_full", "nothing was stored")
				break
			}
		}
	}
	if stored == 0 || stored > 1000 {
		k.Fatalf("%d documents fill the storage", stored)
	}
	return stored
}

// At the bound nothing is stored, not even in part. Everything can be read and deleted, and after
// that stored again.
func TestAtItsBoundTheStorageCanBeReadAndEmptied(t *testing.T) {
	k := setUpWith(t, Options{MaxData: 1 << 20})
	conversation := k.widget("GET conversations", "").text("items.0.id")
	k.sync("PUT coupons", `{"items":[{"code":"ANY","percent":5},{"code":"ONE","percent":5,"max_uses":1}]}`).want(200)
	stored := k.fill()
	before := k.census()
	large := strings.Repeat("x", 8000)
	for target, body := range map[string]string{
		"POST messages":     `{"text":"` + large + `"}`,
		"POST leads":        `{"email":"ann@example.org","note":"` + large[:4000] + `"}`,
		"POST events":       `{"type":"x","data":{"x":"` + large[:4000] + `"}}`,
		"POST satisfaction": `{"score":5,"comment":"` + large[:2000] + `"}`,
	} {
		t.Run(target, func(t *testing.T) {
			for range 3 { // until the rest of its last page is full too
				if a := k.widget(target, body); a.status != 201 && a.status != 202 {
					a.wantError(507, "storage_full", "nothing was stored")
				}
			}
			k.widget(target, body).wantError(507, "storage_full")
		})
	}
	k.sync("PUT documents", documents(100, large)).wantError(507, "storage_full")
	if after := k.census(); after[6] != before[6] || before[6] != stored {
		t.Errorf("there are %d documents, and were %d of %d stored", after[6], before[6], stored)
	}
	for _, target := range []string{"GET conversations", "GET conversations/" + conversation, "GET events"} {
		k.widget(target, "").want(200)
	}
	k.widget("POST coupon/apply", `{"code":"ANY"}`).want(200) // it stores nothing
	k.sync("GET status", "").want(200).says("documents", float64(stored))
	k.sync("GET documents", "").want(200)

	made, err := k.b.Tokens().Create(t.Context(), "demo")
	if err != nil {
		t.Fatalf("create a token at the bound: %v", err)
	}
	if err := k.b.Tokens().Revoke(t.Context(), made.ID); err != nil {
		t.Errorf("revoke a token at the bound: %v", err)
	}
	for i := range stored {
		k.sync("DELETE documents", fmt.Sprintf(`{"items":[{"id":"fill-%d"}]}`, i)).want(200).says("deleted", 1.0)
	}
	k.clock.pass(31 * 24 * time.Hour)
	if err := k.b.sweep(t.Context(), k.clock.now()); err != nil {
		t.Fatal(err)
	}
	k.session = k.visitor("demo")
	k.widget("POST messages", `{"text":"`+large+`"}`).want(201)
	k.widget("POST coupon/apply", `{"code":"ONE"}`).want(200)
	if again := k.fill(); again < stored*3/4 {
		t.Errorf("after everything was deleted there is room for %d documents, and was for %d", again, stored)
	}
	if n := strings.Count(k.log.String(), "over 80 %"); n == 0 || n > 2 {
		t.Errorf("the log warns %d times that a share becomes full, want once for each: %s", n, k.log)
	}
}

// Each process has its own bound: if the database is larger, the process warns at the start, and
// only deletes.
func TestADatabaseBeyondTheBoundIsServedAndSaid(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	k := setUp(t)
	k.sync("PUT documents", documents(100, strings.Repeat("x ", 10_000))).want(200)
	small := *k
	small.b = k.open(Options{Dir: k.dir, MaxData: 1 << 20})
	if !strings.Contains(k.log.String(), "more storage is in use than --max-data allows") {
		t.Errorf("the log does not say it at the start: %s", k.log)
	}
	small.widget("POST leads", `{"email":"ann@example.org"}`).wantError(507, "storage_full")
	small.send("POST /api/v1/widget/init", "", `{"agent_id":"demo"}`).wantError(507, "storage_full")
	small.widget("GET conversations", "").want(200)
	k.widget("POST leads", `{"email":"ann@example.org"}`).want(201) // the process without a bound

	small.sync("DELETE documents", documentIDs(100)).want(200).says("deleted", 100.0)
	small.widget("POST leads", `{"email":"ann@example.org"}`).want(201)
	small.sync("PUT documents", documents(100, strings.Repeat("x ", 10_000))).wantError(507, "storage_full")
}

func documentIDs(n int) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(`{"id":"post-%03d"}`, i)
	}
	return `{"items":[` + strings.Join(items, ",") + `]}`
}

func TestABoundBelowTheEmptyDatabaseIsAnErrorOfOpen(t *testing.T) {
	b, err := Open(t.Context(), Options{Dir: filepath.Join(t.TempDir(), "weir-data"), MaxData: 64 << 10, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		b.Close()
	}
	if !errors.Is(err, ErrMaxData) {
		t.Errorf("Open with a bound of 64 KiB returns %v, want ErrMaxData", err)
	}
}
