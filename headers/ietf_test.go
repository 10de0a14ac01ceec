package headers_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlimit/weir/headers"
)

var (
	initMembers = []headers.Member{
		{Name: "widget-init 60s by ip+agent", Quota: 1000, Window: 60, Remaining: 999, Reset: 60},
		{Name: "widget-init 3600s by ip", Quota: 30000, Window: 3600, Remaining: 29999, Reset: 3600},
	}
	initPolicy = `"widget-init 60s by ip+agent";q=1000;w=60, "widget-init 3600s by ip";q=30000;w=3600`
	initLimits = `"widget-init 60s by ip+agent";r=999;t=60, "widget-init 3600s by ip";r=29999;t=3600`
)

// One member per window (D23).
func TestIETFFieldsAreListsOfAMemberPerWindow(t *testing.T) {
	if got := string(headers.AppendPolicy(nil, initMembers)); got != initPolicy {
		t.Errorf("AppendPolicy writes %s\nwant %s", got, initPolicy)
	}
	if got := string(headers.AppendLimits(nil, initMembers)); got != initLimits {
		t.Errorf("AppendLimits writes %s\nwant %s", got, initLimits)
	}
}

// Requests at the same time have a unit of their own (section 3.1.2 of draft 10), and no reset.
func TestALimitInFlightIsAMemberWithItsUnit(t *testing.T) {
	all := append(slices.Clone(initMembers[:1]), headers.Member{Name: "widget-init in flight by ip", Quota: 10, Remaining: 3, Concurrent: true})
	const policy = `"widget-init 60s by ip+agent";q=1000;w=60, "widget-init in flight by ip";q=10;qu="concurrent-requests"`
	const limits = `"widget-init 60s by ip+agent";r=999;t=60, "widget-init in flight by ip";r=3`
	if got := string(headers.AppendPolicy(nil, all)); got != policy {
		t.Errorf("AppendPolicy writes %s\nwant %s", got, policy)
	}
	if got := string(headers.AppendLimits(nil, all)); got != limits {
		t.Errorf("AppendLimits writes %s\nwant %s", got, limits)
	}
	fields := map[string][]string{"Ratelimit": {limits}, "Ratelimit-Policy": {policy}}
	get := func(name string) []string { return fields[name] }
	if s, err := headers.Read(get, headers.Hint{}); err != nil || s.Limit != 1000 || s.Remaining != 999 {
		t.Errorf("the budget is %+v, %v; slots are none", s, err)
	}
	fields["Ratelimit"], fields["Ratelimit-Policy"] = []string{`"s";r=0`}, []string{`"s";q=10;qu="concurrent-requests"`}
	if s, err := headers.Read(get, headers.Hint{}); err == nil {
		t.Errorf("a limit in flight alone is read as the budget %+v", s)
	}
}

func TestIETFFieldsAreReadAsTheDraftSays(t *testing.T) {
	for _, test := range []struct {
		lines []string
		want  []headers.Member
	}{
		{nil, nil},
		{[]string{""}, nil},
		{[]string{`"burst";q=100;w=60,"daily";q=1000;w=86400`}, []headers.Member{{Name: "burst", Quota: 100, Window: 60}, {Name: "daily", Quota: 1000, Window: 86400}}},
		{[]string{`"burst";q=100;w=60`, `"daily";q=1000`}, []headers.Member{{Name: "burst", Quota: 100, Window: 60}, {Name: "daily", Quota: 1000}}},
		{[]string{`"peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:`}, []headers.Member{{Name: "peruser", Quota: 65535, Window: 10}}},
		{[]string{`"slots";q=10;qu="concurrent-requests"`, `"odd";w=60;qu="concurrent-requests";q=3`}, []headers.Member{{Name: "slots", Quota: 10, Concurrent: true}, {Name: "odd", Quota: 3, Concurrent: true}}},
		// A token is no string.
		{[]string{`"a";q=1;qu=concurrent-requests`}, []headers.Member{{Name: "a", Quota: 1}}},
		{[]string{` "a\"\\b"; q=1 `}, []headers.Member{{Name: `a"\b`, Quota: 1}}},
		{[]string{"\"a\";q=1\t ,\t\"b\";q=2"}, []headers.Member{{Name: "a", Quota: 1}, {Name: "b", Quota: 2}}},
		// Of a parameter that is there twice the last counts.
		{[]string{`"a";q=1;q=2`}, []headers.Member{{Name: "a", Quota: 2}}},
		{[]string{`"a";x;y=?0;z=tok/en;d=@1659578233;f=-1.5;s="w=9";u=%"%c3%bc";q=999999999999999`}, []headers.Member{{Name: "a", Quota: 999999999999999}}},
	} {
		got, err := headers.ParsePolicy(test.lines)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("ParsePolicy of %q is %+v, %v; want %+v", test.lines, got, err, test.want)
		}
	}
	got, err := headers.ParseLimits([]string{`"default";r=50;t=30`})
	if want := []headers.Member{{Name: "default", Remaining: 50, Reset: 30}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("ParseLimits of the draft's example is %+v, %v; want %+v", got, err, want)
	}
}

func TestReadingIETFFieldsRefusesWhatIsNoListOfMembers(t *testing.T) {
	for line, want := range map[string]string{
		`"a"`:                                 `member "a": its q is missing`,
		`"a";q`:                               `member "a": its q is "?1", and a whole number from 0 on is allowed`,
		`"a";q=-1`:                            `member "a": its q is "-1", and a whole number from 0 on is allowed`,
		`"a";q=1.5`:                           `member "a": its q is "1.5", and a whole number from 0 on is allowed`,
		`"a";q="1"`:                           `member "a": its q is "1", and a whole number from 0 on is allowed`,
		`"a";q=1;w=0`:                         `member "a": its w is "0", and a whole number from 1 on is allowed`,
		`"a";q=1000000000000000`:              `"1000000000000000" is not a whole number of up to 15 digits`,
		`"a";q=+1`:                            `'+' does not begin a value`,
		`"a";q=`:                              `it ends where a value is required`,
		`"a";Q=1`:                             `a parameter has no name, which begins with a small letter`,
		`a;q=1`:                               `a member begins with a name in quotes`,
		`("a");q=1`:                           `'(' does not begin a value`,
		`"a;q=1`:                              `a string has no end`,
		`"\a";q=1`:                            `a backslash in a string must precede " or \`,
		`"ü";q=1`:                             `a string contains 'Ã': only printable ASCII is allowed`,
		`"a";q=1,`:                            `it ends with a comma`,
		`"a";q=1 "b";q=2`:                     `'"' follows where only a comma is allowed`,
		`"a";q=1, "a";q=2`:                    `the member "a" occurs twice`,
		`"a";pk=:é:;q=1`:                      `a byte sequence has no end`,
		`"a";pk=:a:;q=1`:                      `a byte sequence is not base64`,
		`"a";x=?2;q=1`:                        `a boolean is ?0 or ?1`,
		strings.Repeat(`"a";q=1,`, 1) + `"\\`: `a string has no end`,
		`"a";q=1;d=@x`:                        `a date is @ and a whole number of seconds`,
		`"a";u=%x;q=1`:                        `a display string begins with %"`,
		`"a";f=1.;q=1`:                        `"1." is not a decimal`,
		manyMembers(65):                       `it has more than 64 members`,
	} {
		_, err := headers.ParsePolicy([]string{line})
		if err == nil || !strings.HasPrefix(err.Error(), "field RateLimit-Policy: ") || !strings.HasSuffix(err.Error(), " is refused: "+want) {
			t.Errorf("%.80s: the error is %v\nwant one that ends in %s", line, err, want)
		}
	}
	if got, err := headers.ParsePolicy([]string{manyMembers(64)}); err != nil || len(got) != 64 {
		t.Errorf("64 members are %d, %v", len(got), err)
	}
}

func manyMembers(n int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = `"m` + strconv.Itoa(i) + `";q=1`
	}
	return strings.Join(members, ",")
}

func FuzzMembersWrittenAreRead(f *testing.F) {
	f.Add("widget-leads", int64(30), int64(60), int64(29), int64(42))
	f.Add(`a"\`+"\x00ü", int64(-1), int64(0), int64(1<<62), int64(-1))
	f.Fuzz(func(t *testing.T, name string, q, w, r, s int64) {
		hold := func(v int64) int64 { return min(max(v, 0), 999_999_999_999_999) }
		readable := []byte(name)
		for i, c := range readable {
			if c < ' ' || c > '~' {
				readable[i] = '?'
			}
		}
		in := []headers.Member{{Name: name, Quota: q, Window: w, Remaining: r, Reset: s}, {Name: name + "2", Quota: 1, Concurrent: w < 0}}
		policy, err := headers.ParsePolicy([]string{string(headers.AppendPolicy(nil, in))})
		if err != nil || len(policy) != 2 || policy[0] != (headers.Member{Name: string(readable), Quota: hold(q), Window: hold(w)}) || policy[1].Concurrent != (w < 0) {
			t.Fatalf("written %+v, read %+v, %v", in, policy, err)
		}
		limits, err := headers.ParseLimits([]string{string(headers.AppendLimits(nil, in))})
		if err != nil || len(limits) != 2 || limits[0] != (headers.Member{Name: string(readable), Remaining: hold(r), Reset: hold(s)}) {
			t.Fatalf("written %+v, read %+v, %v", in, limits, err)
		}
	})
}

func FuzzMembersReadAreStable(f *testing.F) {
	f.Add(initPolicy)
	f.Add(initLimits)
	f.Add(`"a";x;y=?0;z=tok/en;d=@1659578233;f=-1.5;s="w=9";u=%"%c3%bc";q=9;r=1`)
	f.Fuzz(func(t *testing.T, line string) {
		if first, err := headers.ParsePolicy([]string{line}); err == nil {
			second, err := headers.ParsePolicy(written(headers.AppendPolicy(nil, first)))
			if err != nil || !slices.Equal(first, second) {
				t.Fatalf("%q is read as %+v, written and read again as %+v, %v", line, first, second, err)
			}
		}
		if first, err := headers.ParseLimits([]string{line}); err == nil {
			second, err := headers.ParseLimits(written(headers.AppendLimits(nil, first)))
			if err != nil || !slices.Equal(first, second) {
				t.Fatalf("%q is read as %+v, written and read again as %+v, %v", line, first, second, err)
			}
		}
	})
}

func written(b []byte) []string {
	if len(b) == 0 {
		return nil
	}
	return []string{string(b)}
}
