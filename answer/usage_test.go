package answer_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
)

// withUsage is a policy with GET /usage and two limiters that callers see there.
func withUsage(t *testing.T, usageRequires string) weir.Policy {
	p := limiters(t, map[string][]string{"usage /usage" + usageRequires: {"4 per minute by token or ip"}})
	p.Limiters[0].Answers = weir.AnswerUsage
	p.Limiters = append(p.Limiters, limiters(t, map[string][]string{"open /open": {"10 per minute by token or ip"}}).Limiters...)
	return weir.Policy{Limiters: append(p.Limiters, limiters(t, map[string][]string{"closed /closed requires token": {"20 per minute by everyone"}}).Limiters...)}
}

func get(path string) answer.Question { return answer.Question{Method: http.MethodGet, Path: path} }

func TestUsageIsAnsweredToWhoIsAdmitted(t *testing.T) {
	d := open(t, withUsage(t, ""), answer.Options{})
	me := from("192.0.2.1", "")
	d.ask(me, get("/open"))
	d.ask(from("192.0.2.2", ""), get("/open"))
	a, fields := d.ask(me, get("/usage"))
	const want = `{"now":1800000000,"time":"2027-01-15T08:00:00Z","windows":[` +
		`{"limiter":"usage","window":"4 per minute by token or ip","per_seconds":60,"limit":4,"used":1,"remaining":3,"reset":1800000060,"reset_time":"2027-01-15T08:01:00Z","counted_by":["ip"],"shared":false,"exempt":false,"penalty":false,"state":"counted"},` +
		`{"limiter":"open","window":"10 per minute by token or ip","per_seconds":60,"limit":10,"used":1,"remaining":9,"reset":1800000060,"reset_time":"2027-01-15T08:01:00Z","counted_by":["ip"],"shared":false,"exempt":false,"penalty":false,"state":"counted"}],"left_out":0}`
	if a.Status != http.StatusOK || a.Outcome != answer.Admitted || strings.TrimSpace(string(a.Body())) != want {
		t.Errorf("%d %v\n%s\nwant\n%s", a.Status, a.Outcome, a.Body(), want)
	}
	d.wantFields(fields, "X-RateLimit-Limit", "4", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset", reset, "Date", startDate,
		"Content-Type", "application/json", "Cache-Control", "no-store", "Content-Length", fields["Content-Length"])
	for range 3 {
		a, _ = d.ask(me, get("/usage"))
	}
	if a.Status != http.StatusOK {
		t.Errorf("the last that fits is answered %d", a.Status)
	}
	if a, _ = d.ask(me, get("/usage")); a.Status != http.StatusTooManyRequests {
		t.Errorf("looking is not bounded: %d", a.Status)
	}
}

func TestUsageShowsAPenaltyOnTheFirstWindowOfItsLimiter(t *testing.T) {
	p := withUsage(t, "")
	p.Limiters = append(p.Limiters[:1], limiters(t, map[string][]string{"login /login": {"1 per minute by ip", "5 per hour by ip"}}).Limiters...)
	p.Limiters[1].Penalty = weir.Penalty{After: 1, Per: time.Minute, For: 15 * time.Minute}
	d := open(t, p, answer.Options{})
	me := from("192.0.2.1", "")
	for range 2 {
		d.ask(me, get("/login"))
	}
	a, _ := d.ask(me, get("/usage"))
	var body struct {
		Windows []struct {
			Window           string
			Penalty          bool
			Remaining, Reset int64
		}
	}
	if err := json.Unmarshal(a.Body(), &body); err != nil || len(body.Windows) != 3 {
		t.Fatalf("%v: %s", err, a.Body())
	}
	if w := body.Windows[1]; !w.Penalty || w.Remaining != 0 || w.Reset != 1800000000+15*60 {
		t.Errorf("the first window is %+v, want a penalty of 15 minutes", w)
	}
	if w := body.Windows[2]; w.Penalty || w.Remaining != 4 {
		t.Errorf("the second window is %+v, want its own count", w)
	}
}

// The load of a limiter that lets the caller not in is not the caller's to know.
func TestUsageShowsWhatACredentialOpens(t *testing.T) {
	d := open(t, withUsage(t, ""), answer.Options{})
	if a, _ := d.ask(from("192.0.2.1", ""), get("/usage")); strings.Contains(string(a.Body()), "closed") {
		t.Errorf("without a token: %s", a.Body())
	}
	if a, _ := d.ask(from("192.0.2.1", "Authorization", "Bearer wpt_aaaaaaaaaa_bad"), get("/usage")); strings.Contains(string(a.Body()), "closed") {
		t.Errorf("with a bad token: %s", a.Body())
	}
	a, _ := d.ask(from("192.0.2.1", "Authorization", d.token()), get("/usage"))
	for _, want := range []string{`"limiter":"closed"`, `"shared":true`, `"counted_by":["token"]`} {
		if !strings.Contains(string(a.Body()), want) {
			t.Errorf("with a token, %s is missing in %s", want, a.Body())
		}
	}
}

// The window of another limiter has the tenant of the path, whatever the request itself is counted
// by.
func TestUsageShowsTheWindowsOfARoutesParameter(t *testing.T) {
	t.Run("counted by it", func(t *testing.T) { usageOfTenants(t, "path:tenant+ip", `"limit":30,"used":1,`) })
	t.Run("counted by address", func(t *testing.T) { usageOfTenants(t, "ip", `"limit":30,"used":`) })
}

func usageOfTenants(t *testing.T, key, own string) {
	p := limiters(t, map[string][]string{
		"usage /t/{tenant}/usage": {"30 per minute by " + key},
		"items /t/{tenant}/items": {"60 per minute by path:tenant+ip"},
	})
	for i := range p.Limiters {
		if p.Limiters[i].Name == "usage" {
			p.Limiters[i].Answers = weir.AnswerUsage
		}
	}
	d := open(t, p, answer.Options{})
	for range 3 {
		d.ask(from("192.0.2.1", ""), get("/t/acme/items"))
	}
	for tenant, spent := range map[string]int{"ACME": 3, "other": 0} {
		a, _ := d.ask(from("192.0.2.1", ""), get("/t/"+tenant+"/usage"))
		for _, want := range []string{
			fmt.Sprintf(`"limit":60,"used":%d,`, spent), own, `"counted_by":["path:tenant","ip"]`,
		} {
			if !strings.Contains(string(a.Body()), want) {
				t.Errorf("tenant %s: %s is missing in %s", tenant, want, a.Body())
			}
		}
	}
}

func TestUsageCanRequireACredential(t *testing.T) {
	d := open(t, withUsage(t, " requires token"), answer.Options{})
	if a, _ := d.ask(from("192.0.2.1", ""), get("/usage")); a.Status != http.StatusUnauthorized || strings.Contains(string(a.Body()), "windows") {
		t.Errorf("without a token: %d %s", a.Status, a.Body())
	}
	if a, _ := d.ask(from("192.0.2.1", "Authorization", d.token()), get("/usage")); a.Status != http.StatusOK {
		t.Errorf("with a token: %d %s", a.Status, a.Body())
	}
}

func TestOnlyGETAndHEADShowUsage(t *testing.T) {
	d := open(t, withUsage(t, ""), answer.Options{})
	for method, status := range map[string]int{"HEAD": 200, "POST": 405, "OPTIONS": 405} {
		a, fields := d.ask(from("192.0.2.1", ""), answer.Question{Method: method, Path: "/usage"})
		if a.Status != status || (status == 405) != (fields["Allow"] == "GET, HEAD") {
			t.Errorf("%s: %d, Allow %q", method, a.Status, fields["Allow"])
		}
	}
	// an answer of the door's own, such as a 400, is only counted here
	if a, _ := d.ask(from("192.0.2.1", ""), answer.Question{Method: "GET", Path: "/usage", Public: true}); a.Status != 0 {
		t.Errorf("an answer of the door's own is replaced: %d", a.Status)
	}
}

// While the store is silent, no count is made up.
func TestUsageOfASilentStoreHasNoCounts(t *testing.T) {
	p := withUsage(t, "")
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// the caller is admitted without a count
	p.Limiters[0].Exempt = []weir.Who{{Network: netip.MustParsePrefix("192.0.2.0/24")}}
	decider, err := weir.New(p, brokenStore{}, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	judge, err := answer.New(decider, answer.Options{Identity: who})
	if err != nil {
		t.Fatal(err)
	}
	d := &door{TB: t, judge: judge, who: who}
	a, _ := d.ask(from("192.0.2.1", ""), get("/usage"))
	var got struct {
		Windows []struct {
			State string
			Used  *int64
		}
	}
	if err := json.Unmarshal(a.Body(), &got); err != nil || len(got.Windows) != 3 {
		t.Fatalf("%d %s %v", a.Status, a.Body(), err)
	}
	for _, w := range got.Windows {
		if w.State != "unknown" || w.Used != nil {
			t.Errorf("a count is made up: %s", a.Body())
		}
	}
}
