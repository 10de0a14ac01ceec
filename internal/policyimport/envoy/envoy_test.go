package envoy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/policyimport"
	"github.com/weirlimit/weir/internal/rls/config"
	"github.com/weirlimit/weir/policyfile"
)

// translated returns the policy of descriptors as lines, "NAME ROUTE: WINDOW; WINDOW", and what is
// to be known about it.
func translated(t *testing.T, descriptors string, more ...string) (limiters []string, r *policyimport.Result) {
	t.Helper()
	c, err := config.Parse([]config.File{{Name: "f.yaml", Text: []byte("domain: d\ndescriptors: [\n" + descriptors + "\n]")}}, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := Usual()
	for _, one := range more {
		key, meaning, _ := strings.Cut(one, "=")
		m[key] = meaning
	}
	r = Policy(c, "d", m)
	for _, l := range r.Policy.Limiters {
		var windows []string
		for _, w := range l.Windows {
			windows = append(windows, w.String())
		}
		line := l.Name + " " + strings.Trim(fmt.Sprint(l.Routes), "[]") + ": " + strings.Join(windows, "; ")
		if l.Mode == weir.Shadow {
			line += " (shadow)"
		}
		if len(l.Exempt) > 0 {
			line += fmt.Sprint(" exempt ", l.Exempt)
		}
		limiters = append(limiters, line)
	}
	return limiters, r
}

func TestALimitBecomesAWindowOfItsRoute(t *testing.T) {
	for descriptors, want := range map[string][]string{
		`{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 9}}`:                                                                           {"everything /*: 9 per minute by ip"},
		`{key: path, value: /a, descriptors: [{key: method, value: POST, rate_limit: {unit: week, requests_per_unit: 9}}]}`:                                 {"post-a POST /a: 9 per 7 days by everyone"},
		`{key: path, value: "/a/*", share_threshold: true, descriptors: [{key: user, rate_limit: {unit: month, requests_per_unit: 9}}], shadow_mode: true}`: {"a /a/*: 9 per 30 days by header:X-User"},
		`{key: user, descriptors: [{key: remote_address, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 9}}]}`:                               {"everything /*: 9 per day by header:X-User+ip (shadow)"},
	} {
		got, r := translated(t, descriptors, "user=header:X-User")
		if !slices.Equal(got, want) || len(r.Lost()) > 0 {
			t.Errorf("%s: %q, want %q; problems %q", descriptors, got, want, r.Lost())
		}
	}
}

func TestFieldsThatAPolicyDoesNotHaveAreNamed(t *testing.T) {
	got, r := translated(t, `
{key: path, value: /a, value_to_metric: true, descriptors: [
{key: remote_address, detailed_metric: true, metadata: {k: v}, rate_limit: {unit: minute, requests_per_unit: 9, name: nine}}]},
{key: user, metadata: {k: v}, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 9}}`, "user=header:X-User")
	if want := []string{"a /a: 9 per minute by ip"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	notes := fmt.Sprint(r.Notes)
	for _, want := range []string{"f.yaml:4: path=/a has value_to_metric: ", "f.yaml:5: remote_address has detailed_metric: ", `f.yaml:5: remote_address has a limit with the name "nine": `} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes are %q, want %q", notes, want)
		}
	}
	// The limit without its metadata is a problem. That of line 6 is gone with its metadata.
	if lost := fmt.Sprint(r.Lost()); len(r.Lost()) != 2 || !strings.Contains(lost, "f.yaml:5: remote_address has metadata, ") || !strings.Contains(lost, "f.yaml:6: user has quota_mode, ") {
		t.Errorf("the problems are %q", lost)
	}
}

func TestARequestHasAllWindowsThatEnvoyCounts(t *testing.T) {
	got, r := translated(t, `
{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 100}},
{key: path, value: /a, rate_limit: {unit: hour, requests_per_unit: 7}}`)
	want := []string{"everything /* /a/*: 100 per minute by ip", "a /a: 7 per hour by everyone; 100 per minute by ip"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(r.Notes) != 2 || !strings.Contains(fmt.Sprint(r.Notes), "f.yaml:4: 100 per minute by ip counts for limiter a by itself") {
		t.Errorf("the notes are %q", r.Notes)
	}
}

func TestThatRequestsWithoutTheKeyAreLimitedIsNoted(t *testing.T) {
	const user = `{key: user, rate_limit: {unit: minute, requests_per_unit: 9}}`
	for meaning, want := range map[string]string{
		"header:X-User":       "f.yaml:3: a request without header:X-User: Envoy makes no descriptor of it, so nothing limits it; 9 per minute by header:X-User counts it by its address",
		"ip+query:u":          "f.yaml:3: a request without query:u: Envoy makes no descriptor of it, so nothing limits it; 9 per minute by ip+query:u counts it by its address",
		"session":             "f.yaml:3: a request without session: ",
		"session or token":    "f.yaml:3: a request without session or token: ",
		"header:X-User or ip": "", // the address is asked for
		"token or everyone":   "",
		"ip":                  "",
		"host":                "", // every request of Envoy has one
		"everyone":            "",
	} {
		_, r := translated(t, user, "user="+meaning)
		notes := fmt.Sprint(r.Notes)
		if len(r.Lost()) > 0 || !strings.Contains(notes, want) || (want == "") == strings.Contains(notes, "makes no descriptor") {
			t.Errorf("%s: the notes are %s, want %q", meaning, notes, want)
		}
	}
}

func TestOfSiblingsOneCounts(t *testing.T) {
	const (
		wide = `{key: path, value: "/*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 5}}`
		ip   = `{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 3}}`
		free = "unlimited %s: 2147483647 per second by ip"
	)
	for _, c := range []struct {
		descriptors string
		want        []string
		lost        string
	}{
		{`{key: path, value: /a, rate_limit: {unit: hour, requests_per_unit: 50}}, ` + wide, []string{"a /a: 50 per hour by everyone", "everything /* /a/*: 5 per hour by everyone"}, ""},
		{`{key: path, value: /u, rate_limit: {unlimited: true}}, ` + wide, []string{"everything /* /u/*: 5 per hour by everyone", fmt.Sprintf(free, "/u")}, ""},
		{`{key: path, value: /n, descriptors: [{key: x}]}, ` + wide, []string{"everything /* /n/*: 5 per hour by everyone", fmt.Sprintf(free, "/n")}, ""},
		{`{key: path, value: /, rate_limit: {unit: hour, requests_per_unit: 50}}`, []string{"root /: 50 per hour by everyone", fmt.Sprintf(free, "/*")}, ""},
		{`{key: path, value: /, rate_limit: {unit: hour, requests_per_unit: 50}}, ` + wide, []string{"root /: 50 per hour by everyone", "everything /*: 5 per hour by everyone"}, ""},
		{`{key: path, value: /u, rate_limit: {unlimited: true}}, ` + ip, []string{"everything /*: 3 per minute by ip"}, ""},
		{`{key: path, value: /u, rate_limit: {unlimited: true}}, ` + wide + ", " + ip,
			[]string{"u /u: 3 per minute by ip", "everything /* /u/*: 5 per hour by everyone; 3 per minute by ip"}, ""},
		{ip + `, {key: remote_address, value: 50.0.0.5, rate_limit: {unlimited: true}}`, []string{"everything /*: 3 per minute by ip exempt [50.0.0.5]"}, ""},
		{ip + ", " + wide + `, {key: remote_address, value: 50.0.0.5, rate_limit: {unlimited: true}}`,
			[]string{"everything /*: 3 per minute by ip; 5 per hour by everyone"}, "remote_address=50.0.0.5 has no limit of its own, and counts as other values"},
		{wide + `, {key: remote_address, value: 50.0.0.5, rate_limit: {unlimited: true}}`, []string{"everything /*: 5 per hour by everyone"}, ""},
		{wide + `, {key: path, value: "/a/*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 9}}`, []string{"everything /*: 5 per hour by everyone"}, ""},
		{`{key: path, value: /a, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 9}}, ` + wide,
			[]string{"a /a: 9 per hour by everyone (shadow)", "everything /* /a/*: 5 per hour by everyone", fmt.Sprintf(free, "/a")}, ""},
		{`{key: path, value: /a, rate_limit: {unit: hour, requests_per_unit: 50}}, {key: method, value: POST, rate_limit: {unit: day, requests_per_unit: 9}}`,
			[]string{"a /a: 50 per hour by everyone", "post POST /* POST /a/*: 9 per day by everyone", "post-a POST /a: 50 per hour by everyone; 9 per day by everyone"}, ""},
		{`{key: path, value: /a, rate_limit: {unit: hour, requests_per_unit: 50}}, {key: path, value: /A, rate_limit: {unit: hour, requests_per_unit: 9}}`,
			[]string{"a /a: 50 per hour by everyone"}, "path=/A is the same route as /a of line 3"},
		{`{key: path, value: /a, rate_limit: {unit: hour, requests_per_unit: 50}}, {key: path, value: /a/, rate_limit: {unit: hour, requests_per_unit: 9}}`,
			[]string{"a /a: 50 per hour by everyone"}, "path=/a/ is the same route as /a of line 3"},
	} {
		got, r := translated(t, strings.ReplaceAll(c.descriptors, "}}, ", "}},\n"))
		if lost := fmt.Sprint(r.Lost()); !slices.Equal(got, c.want) || c.lost == "" && lost != "[]" || !strings.Contains(lost, c.lost) {
			t.Errorf("%s: %q, want %q; not imported is %s, want %q", c.descriptors, got, c.want, lost, c.lost)
		}
		if source, err := r.Source(policyfile.Reader{}, "f.yaml"); err != nil {
			t.Errorf("%s: %v\n%s", c.descriptors, err, source)
		}
	}
}

// Envoy compares the whole path. A route without a star covers what is below it, too.
func TestWhatIsBelowAPathIsKeptApartOrNamed(t *testing.T) {
	const login = `{key: path, value: /login, rate_limit: {unit: minute, requests_per_unit: 5}}`
	for _, c := range []struct {
		descriptors string
		want        []string
		note        string
	}{
		{login + `, {key: path, value: "/*", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 9}}`,
			[]string{"everything /* /login/*: 9 per minute by everyone", "login /login: 5 per minute by everyone"}, ""},
		{login + `, {key: path, value: "/login/*", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 9}}`,
			[]string{"login /login: 5 per minute by everyone", "login-2 /login/*: 9 per minute by everyone"}, ""},
		{`{key: path, value: /free, rate_limit: {unlimited: true}}, {key: path, value: "/*", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 9}}`,
			[]string{"everything /* /free/*: 9 per minute by everyone", "unlimited /free: 2147483647 per second by ip"},
			"f.yaml:3: /free also covers /free/, /free;x and what begins with /free., which Envoy limits"},
		{login, []string{"login /login: 5 per minute by everyone"},
			"f.yaml:3: /login also covers what begins with /login/ or /login., which Envoy does not count by 5 per minute by everyone"},
		{login + `, {key: remote_address, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 9}}`,
			[]string{"login /login: 5 per minute by everyone", "everything /* /login/* /login: 9 per minute by ip (shadow)"}, "f.yaml:3: /login also covers"},
	} {
		got, r := translated(t, c.descriptors)
		if !slices.Equal(got, c.want) || len(r.Lost()) > 0 {
			t.Errorf("%s: %q, want %q; problems %q", c.descriptors, got, c.want, r.Lost())
		}
		if notes := fmt.Sprint(r.Notes); !strings.Contains(notes, c.note) || (c.note == "") == strings.Contains(notes, "also covers") {
			t.Errorf("%s: the notes are %s, want %q", c.descriptors, notes, c.note)
		}
		if source, err := r.Source(policyfile.Reader{}, "f.yaml"); err != nil {
			t.Errorf("%s: %v\n%s", c.descriptors, err, source)
		}
	}
}

// The value of :path has the query, and that of a route does not.
func TestThatARouteCoversPathsWithAQueryIsNoted(t *testing.T) {
	const wide = `{key: path, value: "/*", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 9}}`
	for descriptors, want := range map[string][]string{
		`{key: path, value: /login, rate_limit: {unit: minute, requests_per_unit: 5}}`:                                                                                  {"f.yaml:3: /login: Envoy's :path has the query, so a descriptor made of it does not match /login?x; the route /login covers that, too"},
		`{key: path, value: /login, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 5}}`:                                                               {"f.yaml:3: /login: "},
		wide + ",\n" + `{key: path, value: /free, rate_limit: {unlimited: true}}`:                                                                                       {"f.yaml:4: /free: "},
		`{key: path, value: /a, descriptors: [{key: method, value: POST, rate_limit: {unit: minute, requests_per_unit: 5}}]}`:                                           {"f.yaml:3: /a: Envoy's :path has the query, so a descriptor made of it does not match /a?x; the route POST /a covers that, too"},
		`{key: url, value: /a, rate_limit: {unit: minute, requests_per_unit: 5}},` + "\n" + `{key: method, value: POST, rate_limit: {unit: day, requests_per_unit: 5}}`: {"f.yaml:3: /a: "},
		wide: nil,
		`{key: path, value: "/a/*", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 9}}`: nil,
		`{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 9}}`:                             nil,
		`{key: method, value: POST, rate_limit: {unit: minute, requests_per_unit: 9}}`:                        nil,
	} {
		_, r := translated(t, descriptors, "url=path")
		var got []string
		for _, n := range r.Notes {
			if strings.Contains(n.String(), "has the query") {
				got = append(got, n.String())
			}
		}
		if !slices.EqualFunc(got, want, strings.HasPrefix) || len(r.Lost()) > 0 {
			t.Errorf("%s: %q, want %q; problems %q", descriptors, got, want, r.Lost())
		}
	}
}

// An enforced limiter hides the limiters in mode shadow whose routes are wider.
func TestWhatIsTriedOutIsSoBeneathANarrowerLimit(t *testing.T) {
	const post = `{key: method, value: POST, descriptors: [{key: path, value: /orders, rate_limit: {unit: minute, requests_per_unit: 10}}]},` + "\n"
	for descriptors, want := range map[string][]string{
		post + `{key: path, value: /orders, descriptors: [{key: remote_address, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 3}}]}`: {
			"post-orders POST /orders: 10 per minute by everyone", "orders /orders POST /orders: 3 per minute by ip (shadow)"},
		post + `{key: remote_address, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 3}}`: {
			"post-orders POST /orders: 10 per minute by everyone", "everything /* POST /orders/* POST /orders: 3 per minute by ip (shadow)"},
	} {
		got, r := translated(t, descriptors)
		if !slices.Equal(got, want) || len(r.Lost()) > 0 {
			t.Errorf("%s: %q, want %q; problems %q", descriptors, got, want, r.Lost())
		}
		if source, err := r.Source(policyfile.Reader{}, "f.yaml"); err != nil {
			t.Errorf("%s: %v\n%s", descriptors, err, source)
		}
	}
}

func TestWhatAPolicyCannotSayIsReportedWithItsLine(t *testing.T) {
	for descriptor, want := range map[string]string{
		`{key: tenant, rate_limit: {unit: day, requests_per_unit: 1}}`:                                                 "it is not known what key tenant is: give --key tenant=SOURCE",
		`{key: remote_address, value: 10.0.0.1, rate_limit: {unit: day, requests_per_unit: 1}}`:                        "remote_address=10.0.0.1 is one value of key source ip",
		`{key: path, rate_limit: {unit: day, requests_per_unit: 1}}`:                                                   "path without a value has a count for each value",
		`{key: path, value: "/a*", rate_limit: {unit: day, requests_per_unit: 1}}`:                                     "path=/a* has a count for each value that its star matches",
		`{key: path, value: "/a*b", rate_limit: {unit: day, requests_per_unit: 1}}`:                                    "path=/a*b has a star where a route cannot have one",
		`{key: path, value: a, rate_limit: {unit: day, requests_per_unit: 1}}`:                                         "path=a: ",
		`{key: path, value: example.com/x, rate_limit: {unit: day, requests_per_unit: 1}}`:                             "path=example.com/x: no path of a request begins so",
		`{key: path, value: "POST /x", rate_limit: {unit: day, requests_per_unit: 1}}`:                                 "path=POST /x: no path of a request begins so",
		`{key: path, value: "/a?x=1", rate_limit: {unit: day, requests_per_unit: 1}}`:                                  "path=/a?x=1: ",
		`{key: path, value: "/{id}", rate_limit: {unit: day, requests_per_unit: 1}}`:                                   `path=/{id}: no route has a path with "{"`,
		`{key: method, value: "GET evil.com", rate_limit: {unit: day, requests_per_unit: 1}}`:                          `method=GET evil.com: no route has a method with " "`,
		`{key: path, value: "/a}", rate_limit: {unit: day, requests_per_unit: 1}}`:                                     `path=/a}: no route has a path with "}"`,
		`{key: method, value: "GET/", rate_limit: {unit: day, requests_per_unit: 1}}`:                                  `method=GET/: no route has a method with "/"`,
		`{key: remote_address, rate_limit: {unit: day, requests_per_unit: 0}}`:                                         "remote_address admits nothing",
		`{key: remote_address, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}`:                       "remote_address has quota_mode",
		`{key: remote_address, rate_limit: {unit: day, requests_per_unit: 4294967295}}`:                                "remote_address has 4294967295 requests_per_unit: at most 2147483647 are possible",
		`{key: path, value: /a, descriptors: [{key: path, value: /b, rate_limit: {unit: day, requests_per_unit: 1}}]}`: "path=/b is a second path",
		`{key: remote_address, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: x}]}}`:                  "remote_address replaces x",
	} {
		got, r := translated(t, descriptor)
		if len(got) != 0 || len(r.Lost()) != 1 || !strings.Contains(r.Lost()[0].String(), "f.yaml:3: "+want) {
			t.Errorf("%s: limiters %q, problems %q, want %q", descriptor, got, r.Lost(), want)
		}
	}
}

func TestAMeaningThatIsNoneIsAnErrorWithEachThatIsOnce(t *testing.T) {
	for _, meaning := range []string{Path, Method, Host, "ip", "header:X-User", "ip+agent"} {
		if err := Check(meaning); err != nil {
			t.Errorf("%s: %v", meaning, err)
		}
	}
	err := fmt.Sprint(Check("tenant"))
	_, allowed, _ := strings.Cut(err, ": ")
	names := strings.Split(strings.TrimSuffix(allowed, " are allowed"), ", ")
	for _, want := range append([]string{Path, Method, Host}, strings.Split(weir.SourceNames(weir.Sources()), ", ")...) {
		if n := len(slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name != want })); n != 1 {
			t.Errorf("%q is there %d times: %s", want, n, err)
		}
	}
}
