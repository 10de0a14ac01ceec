package rules

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/upstream"
)

// full is an entry that has every field.
func full() entry {
	e := sampleEntry
	e.agent, e.cost, e.aborted = KeyedHash{1, true}, Cost{10, 12}, true
	e.joined = &Joined{
		UserAgent: "curl", RequestID: "abc", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Denial: "AVs8",
		Caller: KeyedHash{2, true}, Upstream: upstream.Address{TLS: true, Host: "b:443"}, UpstreamTime: 1500 * time.Microsecond,
	}
	return e
}

var (
	textKey = regexp.MustCompile(`(?:^| )([a-z_]+)=`)
	jsonKey = regexp.MustCompile(`[{,]"([a-z_]+)":`)
	rowKeys = regexp.MustCompile("(?m)^\\| `([a-z_]+)` (?:\\* )?\\| `([a-z_]+)` \\|")
)

// keys returns the first group of all matches.
func keys(of *regexp.Regexp, text string, group int) string {
	var all []string
	for _, m := range of.FindAllStringSubmatch(text, -1) {
		all = append(all, m[group])
	}
	return strings.Join(all, " ")
}

func TestTheFieldsOfTheAccessLogAreThoseOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "<!-- fields of the access log:")
	table, _, ok := strings.Cut(table, "<!-- end of fields -->")
	if !ok {
		t.Fatal("docs/operate.md has no table of the fields")
	}
	text, object := logged(t, LogText, full()), logged(t, LogJSON, full())
	if got, want := keys(textKey, text, 1), keys(rowKeys, table, 1); got != want {
		t.Errorf("a line in text has the fields\n%s\nand the page\n%s", got, want)
	}
	if got, want := keys(jsonKey, object, 1), keys(rowKeys, table, 2); got != want {
		t.Errorf("a line in JSON has the fields\n%s\nand the page\n%s", got, want)
	}
	const want = ` proto=HTTP/1.1 user_agent=curl upstream=https://b:443 upstream_time=1.500ms request_id=abc ` +
		`traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 denial=AVs8 caller=0000000000000002 aborted=true` + "\n"
	if !strings.HasSuffix(text, want) {
		t.Errorf("the line is %swant at its end %s", text, want)
	}
	if !json.Valid([]byte(object)) {
		t.Errorf("not JSON: %s", object)
	}
	if got := strings.Join(LogFieldNames(), " "); got != "user_agent upstream request_id traceparent denial caller" {
		t.Errorf("the fields that can be switched off are %s", got)
	}
}

func TestASocketIsLoggedByItsPath(t *testing.T) {
	e := full()
	for path, want := range map[string][2]string{
		"/run/app.sock":   {` upstream=unix:/run/app.sock upstream_time`, `,"upstream":"unix:/run/app.sock","upstream_time`},
		`/run/a "b".sock`: {` upstream="unix:/run/a \"b\".sock" upstream_time`, `,"upstream":"unix:/run/a \"b\".sock","upstream_time`},
	} {
		e.joined.Upstream = upstream.AddressOf(&url.URL{Scheme: "unix", Path: path})
		if text, object := logged(t, LogText, e), logged(t, LogJSON, e); !strings.Contains(text, want[0]) || !strings.Contains(object, want[1]) {
			t.Errorf("logged\n%s%s", text, object)
		}
	}
}

// What the client sends as its agent or id can neither end its line nor start another field.
func FuzzNoJoinedValueForgesALine(f *testing.F) {
	for _, s := range []string{"a b", "x\ny=1", `"`, `\`, "\x1b[2J", "a=b", "\x00", "\xff", strings.Repeat("x", 2000), "eyJ.a.b", ""} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, agent, id string) {
		e := full()
		e.joined.UserAgent, e.joined.RequestID = agent, id
		text, object := logged(t, LogText, e), logged(t, LogJSON, e)
		if strings.Count(text, "\n") != 1 || len(text) > 3000 || strings.ContainsFunc(text[:len(text)-1], func(r rune) bool { return r < ' ' || r >= 0x7f }) {
			t.Fatalf("%q", text)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(object), &got); err != nil || got["denial"] != "AVs8" {
			t.Fatalf("%q: %v", object, err)
		}
	})
}

func TestTraceparentsAreChecked(t *testing.T) {
	const id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for value, want := range map[string]bool{
		"00-" + id + "-" + parent + "-01":                      true,
		"01-" + id + "-" + parent + "-00":                      true,
		"ff-" + id + "-" + parent + "-01":                      false,
		"00-" + strings.ToUpper(id) + "-" + parent + "-01":     false,
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-01": false,
		"00-" + id + "-" + strings.Repeat("0", 16) + "-01":     false,
		"00-" + id + "-" + parent + "-01-x":                    false,
		"00_" + id + "-" + parent + "-01":                      false,
		"":                                                     false,
	} {
		if isTraceparent(value) != want {
			t.Errorf("%q is a traceparent: %t, want %t", value, !want, want)
		}
	}
}

func TestALineWithEveryFieldAllocatesNothing(t *testing.T) {
	l := NewAccessLog(discard{}, LogText, nil)
	defer l.Close()
	e := full()
	l.add(&e, AllLogFields)
	if n := testing.AllocsPerRun(1000, func() { l.add(&e, AllLogFields) }); n > 0 {
		t.Errorf("%v allocations a line", n)
	}
}

func BenchmarkAccessLogWithEveryField(b *testing.B) {
	for _, want := range []LogFields{0, AllLogFields} {
		b.Run(fmt.Sprint(want), func(b *testing.B) {
			l := NewAccessLog(discard{}, LogText, nil)
			defer l.Close()
			e := full()
			if want == 0 {
				e.joined = nil
			}
			b.ReportAllocs()
			for b.Loop() {
				l.add(&e, want)
			}
		})
	}
}
