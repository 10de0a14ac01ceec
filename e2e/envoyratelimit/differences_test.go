package envoyratelimit

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/rls"
)

// A difference is a row of the table in docs/envoy.md, and requests that show it.
type difference struct {
	row    string // its first cell
	config string // of one domain, without its line
	ours   ours   // the zero value is the default of --rls
	asks   []string
	// theirs and ours are the begins of the last answers, or of the errors about the configuration.
	they, we string
}

var asTheirs = ours{weir.AlignClock, true}

const (
	hour3 = `[{key: a, rate_limit: {unit: hour, requests_per_unit: 3}}]`
	tight = `[{key: a, rate_limit: {unit: hour, requests_per_unit: 3}}, {key: b, rate_limit: {unit: hour, requests_per_unit: 1}}]`
)

var differences = []difference{
	{"A window begins", hour3, ours{}, []string{"a=x"}, "OK OK/2/3-HOUR/3510s", "OK OK/2/3-HOUR/3600s"},
	{"A refused request", tight, ours{}, []string{"a=x|b=x", "a=x|b=x", "a=x"}, "OK OK/0", "OK OK/1"},
	{"`limit_remaining` beside a refusal", tight, ours{}, []string{"a=x|b=x", "a=x|b=x"}, "OVER_LIMIT OK/1", "OVER_LIMIT OK/2"},
	{"Shadow mode in response fields", `[{key: a, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}]`, asTheirs, []string{"a=x"},
		"OK OK/0/1-HOUR/3510s Limit=1", "OK OK/0/1-HOUR/3510s"},
	{"`quota_mode` *", `[{key: a, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}]`, asTheirs, []string{"a=x", "a=x"}, "OK OK/0", "OVER_LIMIT OVER_LIMIT/0"},
	{"A star inside a value *", `[{key: a, value: "x*z", rate_limit: {unit: hour, requests_per_unit: 1}}]`, asTheirs, []string{"a=xyz"}, "OK OK/0", "OK OK/0/1-HOUR"},
	{"`share_threshold` with a star inside *", `[{key: a, value: "x*z", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}}]`, asTheirs, []string{"a=xyz"},
		"edge.yaml: share_threshold can only be used with wildcard values", "OK OK/0/1-HOUR"},
	{"`metadata` of a descriptor *", `[{key: a, metadata: {k: v}, rate_limit: {unit: hour, requests_per_unit: 1}}]`, asTheirs, []string{"a=x"},
		"edge.yaml: config error, unknown key 'metadata'", "OK OK/0/1-HOUR"},
	{"A key with a star", `[{key: "a*", rate_limit: {unit: hour, requests_per_unit: 1}}]`, asTheirs, []string{"a=x"}, "OK OK/0/1-HOUR", `edge.yaml:2: key "a*": only a value can have a star`},
	{"An underscore in a key or a value", `[{key: a, value: b_c, rate_limit: {unit: hour, requests_per_unit: 1}}]`, asTheirs, []string{"a_b=c"}, "OK OK/0/1-HOUR", "OK OK/0"},
	{"One descriptor with limits of two units", `[{key: a, rate_limit: {unit: minute, requests_per_unit: 5}}]`, asTheirs, []string{"@hour", "a=x", "a=x =5-HOUR"}, "OK OK/3", "OK OK/4"},
	{"Unit `year`", `[{key: a, rate_limit: {unit: year, requests_per_unit: 1}}]`, asTheirs, []string{"a=x"}, "OK OK/0/1-YEAR", `edge.yaml:2: unit "year": the longest window is a month`},
	{"An override with unit `YEAR`", hour3, asTheirs, []string{"a=x =5-YEAR"}, "OK OK/4/5-YEAR", "error: rpc error: code = InvalidArgument desc = descriptors[0].limit.unit is YEAR"},
	{"An override without a unit", hour3, asTheirs, []string{"a=x =5-UNKNOWN"}, "panic: should not get here", "error: rpc error: code = InvalidArgument desc = descriptors[0].limit.unit is UNKNOWN"},
	{"A limit above 2147483647", `[{key: a, rate_limit: {unit: hour, requests_per_unit: 4294967295}}]`, asTheirs, []string{"a=x"}, "OK OK/4294967294/4294967295-HOUR", "OK OK/2147483646/2147483647-HOUR"},
	{"`hits_addend` above 63 bits", hour3, asTheirs, []string{"a=x +18446744073709551615"}, "error: ", "OVER_LIMIT OVER_LIMIT/0"},
	{"`is_negative_hits`", hour3, asTheirs, []string{"a=x", "a=x -"}, "OK OK/1", "error: rpc error: code = InvalidArgument desc = descriptors[0].is_negative_hits"},
	{"More than 8 counts for one request", `[{key: a, rate_limit: {unit: hour, requests_per_unit: 3}}]`, asTheirs, []string{"a=1|a=2|a=3|a=4|a=5|a=6|a=7|a=8|a=9"},
		"OK OK/2", "error: rpc error: code = InvalidArgument desc = the descriptors of the request have more than 8 counts"},
	{"Descriptors more than 64 deep", strings.Repeat("[{key: a, descriptors: ", 64) + hour3 + strings.Repeat("}]", 64), asTheirs, []string{strings.Repeat("a=x ", 65)},
		"OK OK/2/3-HOUR", "edge.yaml:2: descriptors are nested more than 64 deep"},
	{"A field twice in a mapping", `[{key: a, key: b, rate_limit: {unit: hour, requests_per_unit: 1}}]`, asTheirs, []string{"b=x"}, "OK OK/0/1-HOUR", `edge.yaml:2: field "key" occurs twice`},
	{"A merge (`<<: *x`)", `[{key: z, rate_limit: &x {unit: hour, requests_per_unit: 1}}, {key: a, rate_limit: {unit: hour, requests_per_unit: 5, <<: *x}}]`,
		asTheirs, []string{"a=x"}, "OK OK/0/1-HOUR", "edge.yaml:2: a merge (<<)"},
	{"A second document (`---`) in a file", hour3 + "\n---\ndomain: other", asTheirs, []string{"a=x"}, "OK OK/2/3-HOUR", "edge.yaml:3: a second document"},
	{"A field in the wrong place, such as `shadow_mode` in `rate_limit`", `[{key: a, rate_limit: {unit: hour, requests_per_unit: 1, shadow_mode: true}}]`, asTheirs, []string{"a=x", "a=x"},
		"OVER_LIMIT OVER_LIMIT/0/1-HOUR", `edge.yaml:2: unknown field "shadow_mode" of rate_limit`},
}

func TestEveryDifferenceIsAsTheTableHasIt(t *testing.T) {
	p := newPlace(t)
	for i, d := range differences {
		domain := fmt.Sprintf("t%d", i)
		text := "domain: " + domain + "\ndescriptors: " + d.config + "\n"
		them, err := p.theirs(text)
		they, we := fmt.Sprint(err), ""
		us, err := p.weirs(text, d.ours)
		if err != nil {
			we = err.Error()
		}
		for _, asked := range d.asks {
			if asked == "@hour" {
				now := p.clock.Now()
				p.clock.Advance(now.Truncate(time.Hour).Add(time.Hour).Sub(now))
				defer p.clock.Advance(90 * time.Second)
				continue
			}
			r := requestOf(domain, strings.TrimSuffix(asked, " -"))
			r.Descriptors[0].IsNegativeHits = strings.HasSuffix(asked, " -")
			if them != nil {
				they = answer(them, r)
			}
			if us != nil && we == "" || err == nil {
				we = answer(us, r)
			}
		}
		if d.asks[0] == "@hour" {
			p.clock.Advance(90 * time.Second)
		}
		if !strings.HasPrefix(they, d.they) || !strings.HasPrefix(we, d.we) || strings.HasPrefix(we, d.they) && len(d.they) >= len(d.we) {
			t.Errorf("%s:\nthey answer %s\nwant        %s\nwe answer   %s\nwant        %s", d.row, they, d.they, we, d.we)
		}
	}
}

var _ *rls.Service

func TestTheTableOfDifferencesIsComplete(t *testing.T) {
	text, err := os.ReadFile("../../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| | envoyproxy/ratelimit | Weir |\n|---|---|---|\n")
	var rows, shown []string
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			break
		}
		rows = append(rows, strings.TrimSpace(cells[1]))
	}
	for _, d := range differences {
		shown = append(shown, d.row)
	}
	if !slices.Equal(rows, shown) {
		t.Errorf("docs/envoy.md has the rows\n%q, and the tests are for\n%q", rows, shown)
	}
}
