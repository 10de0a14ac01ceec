package answer_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
)

func TestADeniedCallerIsAnswered403WithoutTheFieldsOfAWindow(t *testing.T) {
	p := limiters(t, contract)
	for i := range p.Limiters {
		who, err := weir.ParseWho("192.0.2.0/24")
		if err != nil {
			t.Fatal(err)
		}
		p.Limiters[i].Deny = []weir.Who{who}
	}
	var seen []answer.Observation
	d := open(t, p, answer.Options{IETF: true, Observe: func(o answer.Observation) { seen = append(seen, o) }, Denial: func(d *weir.Decision, caller weir.Keys, _ *weir.Scratch) string {
		return fmt.Sprintf("id of %s, %d", d.DeniedBy.Name, len(weir.SaveDenied(d.DeniedBy, caller)))
	}})
	// leads requires a session: the denial comes before the 401
	for path, id := range map[string]string{"satisfaction": "id of widget-satisfaction, 2", "leads": "id of widget-leads, 2"} {
		a, fields := d.ask(fromHome, post(path))
		if a.Status != http.StatusForbidden || a.Outcome != answer.Denied || !strings.HasPrefix(string(a.Body()), `{"error":{"code":"forbidden",`) {
			t.Errorf("the answer is %d %s", a.Status, a.Body())
		}
		delete(fields, "Content-Length")
		d.wantFields(fields, "Content-Type", "application/json", "Cache-Control", "no-store", "X-Weir-Denial", id)
	}
	slices.SortFunc(seen, func(a, b answer.Observation) int { return -strings.Compare(a.Limiter, b.Limiter) })
	for i, limiter := range []string{"widget-satisfaction", "widget-leads"} {
		if o := seen[i]; o.Outcome.String() != "denied" || o.Limiter != limiter || o.Status != 403 || o.Denial != "id of "+limiter+", 2" || o.Window != nil || o.Who != nil || o.Decision == nil {
			t.Errorf("observed %+v", o)
		}
	}
	// an answer is used again for the next caller
	a := new(answer.Answer)
	d.askInto(fromHome, post("satisfaction"), a)
	d.askInto(from("198.51.100.7", ""), post("satisfaction"), a)
	if a.Status != 0 || a.Outcome != answer.Admitted || a.Values()[0] != "2" {
		t.Errorf("the next caller is answered %d, %v, %q", a.Status, a.Outcome, a.Values())
	}
	d.askInto(fromHome, post("satisfaction"), a)
	if len(a.AppendFields(nil)) != 4 {
		t.Errorf("fields of the caller before: %q", a.AppendFields(nil))
	}
}

// A counting request counts how often its credential is read.
type counting struct {
	*request
	reads int
}

func (c *counting) Header(name string) []string {
	if name == "Authorization" {
		c.reads++
	}
	return c.request.Header(name)
}

// Verifying a credential can cost more than a decision, so the one of a denied address is not even
// read.
func TestTheCredentialOfADeniedAddressIsNotRead(t *testing.T) {
	p := limiters(t, map[string][]string{"shared POST /api/v1/widget/leads requires session": {"9 per minute by everyone", "8 per minute by session or ip"}})
	who, err := weir.ParseWho("192.0.2.0/24")
	if err != nil {
		t.Fatal(err)
	}
	p.Limiters[0].Deny = []weir.Who{who}
	d := open(t, p, answer.Options{})
	for address, denied := range map[string]bool{"192.0.2.7": true, "198.51.100.7": false} {
		r := &counting{request: from(address, "Authorization", "Bearer "+d.session("s1"))}
		var c identity.Caller
		d.who.Start(&c, r)
		q := post("leads")
		q.Caller = &c
		var a answer.Answer
		if err := d.judge.Answer(context.Background(), &q, &a); err != nil {
			t.Fatal(err)
		}
		if (a.Status == http.StatusForbidden) != denied || (r.reads == 0) != denied {
			t.Errorf("%s is answered %d after %d reads of its credential", address, a.Status, r.reads)
		}
	}
}
