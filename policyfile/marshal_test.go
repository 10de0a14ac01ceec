package policyfile_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/policyfile"
)

// anyPolicy draws a policy, with unusual values that package weir allows.
func anyPolicy(t *rapid.T) weir.Policy {
	nameGen := rapid.OneOf(rapid.StringMatching(`[a-z][a-z0-9-]{0,63}`), rapid.SampledFrom([]string{"null", "true", "off", "y", "no", "e5"}))
	names := rapid.SliceOfNDistinct(nameGen, 1, 6, rapid.ID[string]).Draw(t, "names")
	pathGen := rapid.OneOf(
		rapid.StringMatching(`/[a-z0-9/._~!$&'()+,=:@|{}\[\]"<>^-]{0,20}`),
		rapid.StringMatching(`/[\p{L}\p{M}\p{Cf}\p{Zs}\p{So}/]{1,8}`),
		rapid.SampledFrom([]string{"/", "/null", "/- ", "/:", "/\u2028", "/\u0085", "/\u00a0", "/é", "/#", "/\u200d", "/'", "/\"", "/a|"}),
	)
	var p weir.Policy
	for _, name := range names {
		l := weir.Limiter{Name: name, OnStoreFailure: weir.FailureMode(rapid.IntRange(0, 2).Draw(t, "mode"))}
		for range rapid.IntRange(0, 4).Draw(t, "routes") {
			r := weir.Route{
				Method: rapid.SampledFrom([]string{"", "GET", "POST", "NULL"}).Draw(t, "method"),
				Host:   rapid.SampledFrom([]string{"", "", "api.example.com", "*.example.com", "localhost", "intranet", "192.0.2.7", "[2001:db8::1]", "xn--bcher-kva.example", "1e5"}).Draw(t, "host"),
				Path:   pathGen.Draw(t, "path"),
				Prefix: rapid.Bool().Draw(t, "prefix"),
			}
			// keep only routes that can be written
			if read, err := weir.ParseRoute(r.String()); err == nil && read == r {
				l.Routes = append(l.Routes, r)
			}
		}
		for range rapid.IntRange(1, weir.MaxWindows).Draw(t, "windows") {
			l.Windows = append(l.Windows, anyWindow(t))
		}
		l.Cost = rapid.Int64Range(0, l.Windows[0].Limit).Draw(t, "cost")
		anySettling(t, &l)
		l.Requires = rapid.SampledFrom(append(weir.Credentials(), "")).Draw(t, "requires")
		l.Chosen = slices.ContainsFunc(l.Rows(), func(w weir.Window) bool {
			return slices.ContainsFunc(slices.Concat(w.Key...), func(source string) bool { return weir.SourceOf(source).Kind == weir.Chosen })
		})
		l.Mode = weir.Mode(rapid.IntRange(0, 1).Draw(t, "limiter mode"))
		l.Align = weir.Align(rapid.IntRange(0, 1).Draw(t, "align"))
		if len(l.Windows) > 0 && rapid.Bool().Draw(t, "has a penalty") {
			span := func(name string) time.Duration {
				return time.Duration(rapid.Int64Range(1, int64(weir.MaxPer/time.Second)).Draw(t, name)) * time.Second
			}
			l.Penalty = weir.Penalty{After: rapid.Int64Range(1, weir.MaxLimit).Draw(t, "refusals"), Per: span("per"), For: span("for")}
		}
		l.Exempt = append([]weir.Who(nil), rapid.SliceOfNDistinct(anyWho(), 0, 3, rapid.ID[weir.Who]).Draw(t, "exempt")...)
		for _, who := range rapid.SliceOfNDistinct(anyWho(), 0, 3, rapid.ID[weir.Who]).Draw(t, "deny") {
			if !slices.Contains(l.Exempt, who) {
				l.Deny = append(l.Deny, who)
			}
		}
		for _, who := range rapid.SliceOfNDistinct(anyWho(), 0, 3, rapid.ID[weir.Who]).Draw(t, "overrides") {
			if len(l.Windows) > 0 && !slices.Contains(l.Exempt, who) && !slices.Contains(l.Deny, who) {
				l.Overrides = append(l.Overrides, weir.Override{Limit: rapid.Int64Range(max(l.Cost, 1), weir.MaxLimit).Draw(t, "override"), Per: l.Windows[0].Per, Calendar: l.Windows[0].Calendar.Unit, Requests: l.Windows[0].Requests, For: who})
			}
		}
		if l.Mode == weir.Enforce && !l.Settles() {
			l.Answers = weir.Answerer(rapid.IntRange(0, 1).Draw(t, "answers"))
		}
		l.Notify = append([]int64(nil), rapid.SliceOfNDistinct(rapid.Int64Range(1, 100), 0, weir.MaxNotify, rapid.ID[int64]).Draw(t, "notify")...)
		slices.Sort(l.Notify)
		l.Plans = anyPlans(t, &l)
		l.Message = rapid.SampledFrom([]string{"", "widget", "bulk-sync", "null"}).Draw(t, "message")
		p.Limiters = append(p.Limiters, l)
	}
	p.Responses = anyResponses(t)
	return p
}

// anySettling draws what l learns of a request after it has admitted it.
func anySettling(t *rapid.T, l *weir.Limiter) {
	places := rapid.SampledFrom([]weir.Reading{{}, {Form: weir.ReadHeader, Name: "X-Cost"}, {Form: weir.ReadJSON, Name: "usage.total_tokens"}, {Form: weir.ReadJSON, Name: "null"}, {Form: weir.ReadJSON, Name: "a:b,[c]#'é"}})
	l.Actual = places.Draw(t, "cost from")
	if l.Cost > 0 {
		if l.Reserve.From = places.Draw(t, "reserve from"); l.Reserve.From != (weir.Reading{}) {
			l.Reserve.Times = rapid.Int64Range(0, weir.MaxLimit).Draw(t, "times")
			l.Reserve.Plus = rapid.Int64Range(0, weir.MaxLimit).Draw(t, "plus")
		}
	}
	statuses := rapid.SampledFrom([]weir.Statuses{{Low: 200, High: 299}, {Low: 401, High: 401}, {Low: 500, High: 500}, {Low: 500, High: 599}, {Low: 599, High: 599}})
	l.Count.Statuses = append([]weir.Statuses(nil), rapid.SliceOfNDistinct(statuses, 0, 3, rapid.ID[weir.Statuses]).Draw(t, "statuses")...)
	l.Count.Not = len(l.Count.Statuses) > 0 && rapid.Bool().Draw(t, "not")
	if rapid.Bool().Draw(t, "has slots") {
		w := anyWindow(t)
		l.InFlight = weir.InFlight{Limit: w.Limit, Key: w.Key}
		if rapid.Bool().Draw(t, "slots alone") {
			*l = weir.Limiter{Name: l.Name, Routes: l.Routes, InFlight: l.InFlight, Count: l.Count}
		}
	}
}

// anyResponses draws texts and answers that package weir allows.
func anyResponses(t *rapid.T) (w weir.Responses) {
	words := rapid.OneOf(
		rapid.StringMatching(`[ -z|~]{0,20}[!-z][ -z|~]{0,20}`),
		rapid.StringMatching(`[\p{L}\p{M}\p{Cf}\p{So}]{1,12}`),
		rapid.SampledFrom([]string{"null", "no", "1", "a: b", "# a", "- a", "{limiter} {limit}", "'", "\"", "\\", "*", "&a", "a #b", "!", "%", "@"}),
	)
	names := rapid.SampledFrom([]string{"slow-down", "general", "null", "on", "y", "e5"})
	tags := rapid.SampledFrom([]string{"de", "no", "pt-BR", "zh-Hant", "fr"})
	for _, name := range rapid.SliceOfNDistinct(names, 0, 3, rapid.ID[string]).Draw(t, "messages") {
		if w.Messages == nil {
			w.Messages = map[string]weir.Texts{}
		}
		texts := weir.Texts{"en": words.Draw(t, "text")}
		for _, tag := range rapid.SliceOfNDistinct(tags, 0, 3, rapid.ID[string]).Draw(t, "tags") {
			texts[tag] = words.Draw(t, "text")
		}
		w.Messages[name] = texts
	}
	w.Answers.Format = weir.Format(rapid.IntRange(0, 1).Draw(t, "format"))
	w.Answers.Refused.Status = rapid.SampledFrom([]int{0, 403, 429, 503}).Draw(t, "status")
	w.Answers.Unauthenticated.Message = rapid.SampledFrom([]string{"", "null", "slow-down"}).Draw(t, "unauthenticated")
	if rapid.Bool().Draw(t, "has credentials") {
		w.Answers.Unauthenticated.Credentials = map[string]string{"token": "slow-down"}
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"X-A", "no", "N", "1"}), 0, 3, strings.ToLower).Draw(t, "fields") {
		if w.Answers.Unavailable.Fields == nil {
			w.Answers.Unavailable.Fields = map[string]string{}
		}
		w.Answers.Unavailable.Fields[name] = rapid.StringMatching(`[!-~]([ -~]{0,12}[!-~])?`).Draw(t, "value")
	}
	return w
}

// anyPlans draws plans whose rates change a window of l, or none.
func anyPlans(t *rapid.T, l *weir.Limiter) (p weir.Plans) {
	if len(l.Windows) == 0 {
		return p
	}
	names := rapid.SliceOfNDistinct(rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9._-]{1,12}`), rapid.SampledFrom([]string{"null", "true", "off", "1", "1.5", "-", "~"})), 0, 4, rapid.ID[string]).Draw(t, "plans")
	for _, name := range names {
		if !weir.IsPlanName(name) {
			continue
		}
		plan := weir.Plan{Name: name}
		for _, w := range l.Windows {
			if rapid.Bool().Draw(t, "changes") || w.Per == l.Windows[0].Per {
				plan.Rates = append(plan.Rates, weir.Rate{Limit: rapid.Int64Range(max(l.Cost, 1), weir.MaxLimit).Draw(t, "rate"), Per: w.Per, Calendar: w.Calendar.Unit, Requests: w.Requests})
			}
		}
		p.List = append(p.List, plan)
	}
	if len(p.List) > 0 {
		p.By = rapid.SampledFrom([]string{"token", "claim:plan", "claim:org.plan", "claim:https://example.com/plan", "claim:-", "claim:plan:", "claim:#plan", "claim:a*b&c!%?@~$", "header:X-Plan"}).Draw(t, "by")
	}
	return p
}

func anyWho() *rapid.Generator[weir.Who] {
	return rapid.Custom(func(t *rapid.T) weir.Who {
		if rapid.Bool().Draw(t, "is a token") {
			return weir.Who{Token: rapid.StringMatching(`[a-z2-7]{10}|[A-Za-z0-9._-]{1,12}`).Filter(func(s string) bool { return !strings.HasPrefix(s, "wpt_") }).Draw(t, "token")}
		}
		addr := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "IPv4")))
		if rapid.Bool().Draw(t, "is IPv6") {
			addr = netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "IPv6"))).Unmap()
		}
		network, err := addr.Prefix(rapid.IntRange(0, addr.BitLen()).Draw(t, "bits"))
		if err != nil {
			t.Fatal(err)
		}
		return weir.Who{Network: network}
	})
}

func anyWindow(t *rapid.T) weir.Window {
	unit := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "unit")
	w := weir.Window{
		Limit: rapid.Int64Range(1, weir.MaxLimit).Draw(t, "limit"),
		Per:   time.Duration(rapid.Int64Range(1, int64(weir.MaxPer/unit)).Draw(t, "n")) * unit,
	}
	if rapid.IntRange(0, 3).Draw(t, "calendar") == 0 {
		w.Calendar.Unit = rapid.SampledFrom([]weir.CalendarUnit{weir.CalendarDay, weir.CalendarWeek, weir.CalendarMonth}).Draw(t, "unit of the calendar")
		w.Per = map[weir.CalendarUnit]time.Duration{weir.CalendarDay: 24 * time.Hour, weir.CalendarWeek: 7 * 24 * time.Hour, weir.CalendarMonth: 31 * 24 * time.Hour}[w.Calendar.Unit]
		w.Calendar.Zone = rapid.SampledFrom([]string{"", "Europe/Berlin", "America/Port-au-Prince", "Etc/GMT+5"}).Draw(t, "zone")
		if w.Calendar.Unit != weir.CalendarDay {
			w.Calendar.Day = rapid.SampledFrom([]int{0, 2, 7}).Draw(t, "day")
		}
	}
	w.Requests = rapid.IntRange(0, 3).Draw(t, "requests") == 0
	for range rapid.IntRange(1, 3).Draw(t, "parts") {
		part := rapid.SliceOfN(rapid.SampledFrom(spelled()), 1, 3).Draw(t, "part")
		w.Key = append(w.Key, slices.Clone(part))
	}
	return w
}

// spelled returns each of the built-in key sources as a policy spells it.
func spelled() []string {
	var all []string
	for _, s := range weir.Sources() {
		if all = append(all, s.Name); s.Field != "" {
			all[len(all)-1] += ":X-Api-Key"
		}
	}
	return all
}

func TestWhatIsWrittenIsReadTheSame(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		p := anyPolicy(t)
		if len(p.Problems(identity.Sources())) > 0 {
			return // the check of accepted below ensures that some are valid
		}
		accepted++
		source := policyfile.Marshal(p)
		f, err := policyfile.Parse("written.yaml", source)
		if err != nil {
			t.Fatalf("%v\nin:\n%s", err, source)
		}
		if !reflect.DeepEqual(f.Policy, p) {
			t.Fatalf("read %+v\nwant %+v\nin:\n%s", f.Policy, p, source)
		}
	})
	if accepted == 0 && !testing.Short() {
		t.Error("no valid policy was drawn")
	}
}

func TestAWrittenPolicyReadsLikeTheContract(t *testing.T) {
	p := policyfile.Contract()
	p = weir.Policy{Limiters: []weir.Limiter{p.Limiters[0], p.Limiters[3]}}
	p.Limiters[1].Cost, p.Limiters[1].OnStoreFailure = 2, weir.FailDeny
	const want = `limiters:
  - name: widget-init
    routes: [POST /api/v1/widget/init]
    windows:
      - 1000 per minute by ip+agent
      - 30000 per hour by ip
    message: widget
  - name: wp-plugin
    routes: [/v1/wp/*]
    windows: [60 per minute by token or ip]
    cost: 2
    requires: token
    message: bulk-sync
    on_store_failure: deny
`
	if got := string(policyfile.Marshal(p)); got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}

func TestWhatIsSettledIsWrittenOnOneLineEach(t *testing.T) {
	f, err := reader.Load("testdata/good/settle.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := string(policyfile.Marshal(f.Policy))
	for _, line := range []string{
		"cost: {reserve: {from: json:max_tokens, times: 2, plus: 500, at_most: 8000}, from: json:usage.total_tokens}",
		"cost: {reserve: 40, from: header:X-Cost}", "cost: {reserve: 1, from: header:X-Cost}", "cost: {reserve: {from: header:X-Batch, at_most: 100}}",
		"count: {status: [401, 403]}", "count: {not: [5xx, 404, 499]}",
		"in_flight: 4 by token", "in_flight: 10 by session or ip",
		"- 60 requests per minute by token", "- 3000 requests per calendar month in Europe/Berlin by token",
		"gold: [600 requests per minute, 1000000 per day]", "overrides: [6000 requests per minute for token 3fk2mq7a4c]",
	} {
		if !strings.Contains(got, " "+line+"\n") {
			t.Errorf("%s is not in\n%s", line, got)
		}
	}
}

func ExampleMarshal() {
	w, err := weir.ParseWindow("30 per minute by session or ip")
	if err != nil {
		panic(err)
	}
	p := weir.Policy{Limiters: []weir.Limiter{{
		Name:    "leads",
		Routes:  []weir.Route{{Method: "POST", Path: "/leads"}},
		Windows: []weir.Window{w},
	}}}
	fmt.Printf("%s", policyfile.Marshal(p))
	// Output:
	// limiters:
	//   - name: leads
	//     routes: [POST /leads]
	//     windows: [30 per minute by session or ip]
}
