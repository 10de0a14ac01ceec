package sample

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/logtest"
)

// Visitors' rows are deleted to the millisecond, by the backend's clock; what a workspace has
// synced stays, and so does the number of uses.
func TestAVisitorsRowsGoAfter30Days(t *testing.T) {
	k := setUp(t)
	k.sync("PUT documents", documents(2, "x")).want(200)
	k.sync("PUT coupons", `{"items":[{"code":"ONE","percent":5,"max_uses":1}]}`).want(200)
	k.widget("POST coupon/apply", `{"code":"ONE"}`).want(200)
	answered := k.widget("POST messages", `{"text":"hello"}`).want(201).text("reply.id")
	k.widget("POST messages/"+answered+"/feedback", `{"helpful":true}`).want(204)
	k.widget("POST satisfaction", `{"score":5}`).want(201)
	k.widget("POST leads", `{"email":"ann@example.org"}`).want(201)
	k.clock.pass(time.Millisecond)
	later := k.visitor("demo")
	before := k.census()

	k.clock.pass(30*24*time.Hour - 2*time.Millisecond) // since the first visitor
	if err := k.b.sweep(t.Context(), k.clock.now()); err != nil {
		t.Fatal(err)
	}
	if after := k.census(); after != before {
		t.Errorf("a millisecond before 30 days rows of %v went from %v to %v", tables, before, after)
	}
	k.clock.pass(time.Millisecond)
	if err := k.b.sweep(t.Context(), k.clock.now()); err != nil {
		t.Fatal(err)
	}
	if after, want := k.census(), [8]int{1, 1, 0, 1, 0, 0, 2, 1}; after != want {
		t.Errorf("after 30 days there are %v rows of %v, want %v", after, tables, want)
	}
	if n := k.rows("redemptions"); n != 0 {
		t.Errorf("%d uses of visitors that are gone are left", n)
	}
	k.sync("GET coupons", "").want(200).says("items.0.uses", 1.0) // the token still works
	log := k.log.String()
	if strings.Count(log, "older than 30 days") != 1 || !strings.Contains(log, "sessions=1 conversations=1 messages=2 leads=1") {
		t.Errorf("the log does not say once what went: %s", log)
	}

	k.session = k.visitor("demo")
	// no use comes back
	k.widget("POST coupon/apply", `{"code":"ONE"}`).wantError(410, "gone", "used up")
	k.send("GET /api/v1/widget/conversations", later, "").wantError(401, "unauthenticated")
}

// The backend sweeps when it opens, without delaying that, and once an hour until Close.
func TestTheBackendSweepsWhenItOpensAndEveryHour(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := new(logtest.Buffer)
		k := &bench{T: t, dir: dir, log: log}
		open := func() {
			var err error
			if k.b, err = Open(t.Context(), Options{Dir: dir, Log: slog.New(slog.NewTextHandler(log, nil))}); err != nil {
				t.Fatal(err)
			}
		}
		closed := func() {
			if err := k.b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		left := func(when string, want int) {
			t.Helper()
			// longer than any sweep: time passes when everything else is done
			time.Sleep(time.Minute)
			if n := k.rows("sessions"); n != want {
				t.Errorf("%s %d sessions are left, want %d: %s", when, n, want, log)
			}
		}
		open()
		k.visitor("demo")
		time.Sleep(30 * time.Minute)
		k.visitor("demo")
		time.Sleep(30*24*time.Hour - 40*time.Minute)
		left("before 30 days", 2)
		time.Sleep(30 * time.Minute)
		left("at the hour after the first visitor's 30 days", 1)
		time.Sleep(time.Hour)
		left("an hour later", 0)

		k.visitor("demo")
		closed()
		time.Sleep(60 * 24 * time.Hour)
		left("while it is closed", 1)
		open()
		left("once it is open again", 0)
		closed()
	})
}
