package httplimit_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// A view is a request without net/http: what another engine would hand to Judge.
type view struct {
	peer   string
	header map[string][]string
}

func (v *view) Peer() string                     { return v.peer }
func (v *view) Header(name string) []string      { return v.header[name] }
func (v *view) Query(string) (string, bool)      { return "", false }
func (v *view) Body(int) []byte                  { return nil }
func (v *view) with(n string, l ...string) *view { return &view{v.peer, map[string][]string{n: l}} }

var fromHome = &view{peer: "192.0.2.7:50123"}

// refused returns what a caller that asks for languages is told in a 429.
func refused(t testing.TB, m *httplimit.Middleware, accept ...string) (language, message string) {
	t.Helper()
	var c identity.Caller
	var a httplimit.Answer
	q := httplimit.Question{Request: fromHome.with("Accept-Language", accept...), Method: "POST", Path: "/api/v1/widget/typing"}
	for range 2 {
		if err := m.Judge(context.Background(), q, &c, &a); err != nil {
			t.Fatal(err)
		}
	}
	if a.Status != http.StatusTooManyRequests {
		t.Fatalf("the status is %d, want 429", a.Status)
	}
	for name, value := range a.Fields() {
		if name == "Content-Language" {
			language = value
		}
	}
	var body struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(a.Body(), &body); err != nil || body.Error.Code != "rate_limited" {
		t.Fatalf("the body is %s, %v", a.Body(), err)
	}
	return language, body.Error.Message
}

// D20: quality values of RFC 9110, section 12.5.4, English where nothing fits.
func TestTheMessageIsInTheCallersLanguage(t *testing.T) {
	m := perIP(t, 1, httplimit.Options{})
	for _, test := range []struct {
		accept []string
		want   string
	}{
		{nil, "en"},
		{[]string{""}, "en"},
		{[]string{"en-GB"}, "en"},
		{[]string{"de"}, "de"},
		{[]string{"DE-ch"}, "de"},
		{[]string{"es-419, es;q=0.9"}, "es"},
		{[]string{"fr-CH, fr;q=0.9, en;q=0.8, de;q=0.7, *;q=0.5"}, "fr"},
		{[]string{"it"}, "it"},
		{[]string{"ja-JP"}, "ja"},
		{[]string{"nl-BE"}, "nl"},
		{[]string{"pl"}, "pl"},
		{[]string{"pt-PT"}, "pt"},
		{[]string{"pt-BR"}, "pt"},
		{[]string{"tr"}, "tr"},
		{[]string{"uk-UA"}, "uk"},
		{[]string{"zh-CN"}, "zh"},
		{[]string{"zh-Hans-SG"}, "zh"},
		{[]string{"ar-EG"}, "ar"},
		{[]string{"da, en;q=0.8"}, "en"},
		{[]string{"fi"}, "en"},
		{[]string{"de;q=0.2, fr;q=0.8"}, "fr"},
		{[]string{"de;q=0.200,fr;q=0.201"}, "fr"},
		{[]string{"de ; q=0.5 , it;Q=1.000"}, "it"},
		{[]string{"de;q=0, en;q=0.1"}, "en"},
		{[]string{"de;q=0"}, "en"},
		{[]string{"de;q=0.0, pl;q=0.001"}, "pl"},
		{[]string{"*"}, "en"},
		{[]string{"*, de"}, "de"},             // as much wanted, and named
		{[]string{"*;q=0.9, de;q=0.5"}, "en"}, // anything before German
		{[]string{"tlh, *;q=0.5, de;q=0.4"}, "en"},
		{[]string{"de;q=1.1, fr;q=0.1"}, "fr"}, // a malformed weight drops its member alone
		{[]string{"de;q=0.1234, fr;q=0.1"}, "fr"},
		{[]string{"de;q=.9, fr;q=0.1"}, "fr"},
		{[]string{"de;q=, fr;q=0.1"}, "fr"},
		{[]string{"de;level=1, fr;q=0.1"}, "fr"},
		{[]string{"@@, ünglisch, de_DE, fr;q=0.1"}, "fr"},
		{[]string{"de", "fr;q=0.9"}, "de"}, // several lines are one list
		{[]string{"fr;q=0.9", "de"}, "de"},
		{[]string{strings.Repeat("x-a-b-c-d,", 10000) + "de"}, "en"},
		{[]string{"pl," + strings.Repeat("a-", 30000)}, "pl"},
		{[]string{strings.Repeat("-", 60000)}, "en"},
		{[]string{"de" + strings.Repeat(" ", 1000)}, "en"},
	} {
		if got, message := refused(t, m, test.accept...); got != test.want {
			t.Errorf("Accept-Language %.60q is answered in %s (%s), want %s", test.accept, got, message, test.want)
		}
	}
}

// D20: the English sentences word for word, and twelve languages beside them for every message.
func TestEveryMessageIsThereInEveryLanguage(t *testing.T) {
	languages := []string{"en", "de", "es", "fr", "it", "ja", "nl", "pl", "pt", "tr", "uk", "zh", "ar"}
	if got := httplimit.Messages(); !slices.Equal(got, []string{"bulk-sync", "general", "widget"}) {
		t.Errorf("the messages are %q", got)
	}
	for name, english := range map[string]string{"widget": widgetText, "bulk-sync": syncText, "general": "Too many requests. Please slow down."} {
		m := withMessage(t, name)
		seen := map[string]string{}
		for _, want := range languages {
			language, text := refused(t, m, want)
			if language != want || text == "" || seen[text] != "" {
				t.Errorf("%s in %s is %q in %s", name, want, text, language)
			}
			seen[text] = language
			if want == "en" && text != english {
				t.Errorf("%s in English is %q, want %q", name, text, english)
			}
		}
	}
}

func withMessage(t *testing.T, name string) *httplimit.Middleware {
	t.Helper()
	p := limiters(t, map[string][]string{"l /api/v1/widget/typing": {"1 per minute by ip"}})
	p.Limiters[0].Message = name
	return perPolicy(t, p, httplimit.Options{})
}

// The answer to the same header does not depend on what was asked before: the table of the last answers is small, and
// hostile headers share its places.
func TestALanguageIsNeverAnothersAnswer(t *testing.T) {
	m := perIP(t, 1, httplimit.Options{})
	for i := range 2000 {
		accept, want := "x-q"+string(rune('a'+i%26))+", de;q=0.9", "de"
		if i%2 == 1 {
			accept, want = "x-q"+string(rune('a'+i%26))+", pl;q=0.9", "pl"
		}
		if got, _ := refused(t, m, accept); got != want {
			t.Fatalf("%q is answered in %s, want %s", accept, got, want)
		}
	}
}

func FuzzAnyAcceptLanguageIsAnswered(f *testing.F) {
	for _, s := range []string{"de-CH, de;q=0.9, *;q=0.1", "x-klingon;q=1", "en-u-ca-buddhist-x-y", ";;;,,,q=", "\x00\xff", "i-klingon, zh-min-nan, art-lojban", "und, mul"} {
		f.Add(s)
	}
	m := perIP(f, 1, httplimit.Options{})
	f.Fuzz(func(t *testing.T, accept string) {
		first, _ := refused(t, m, accept)
		if again, _ := refused(t, m, accept); first == "" || again != first {
			t.Fatalf("%q is answered in %q, then in %q", accept, first, again)
		}
	})
}

// A message that is not in the catalogue, and a key source that nobody answers, are errors before the first request.
func TestAPolicyThatCannotBeServedIsRefused(t *testing.T) {
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := limiters(t, map[string][]string{"l /": {"1 per minute by ip+tenant"}})
	p.Limiters[0].Message = "wigdet"
	d, err := weir.New(p, brokenStore{}, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		decider *weir.Decider
		options httplimit.Options
		want    string
	}{
		{nil, httplimit.Options{Identity: who}, `new middleware: no decider: pass weir.New's`},
		{d, httplimit.Options{}, `new middleware: Options.Identity is required: pass identity.New's`},
		{d, httplimit.Options{Identity: who}, `new middleware: limiter "l" has the message "wigdet": bulk-sync, general, widget are allowed
limiter "l" counts by "tenant": the key sources here are ip, agent, session, token, header:NAME, everyone`},
	} {
		if _, err := httplimit.New(test.decider, test.options); err == nil || err.Error() != test.want {
			t.Errorf("the error is %v\nwant %s", err, test.want)
		}
	}
}

// A limiter that names no text speaks of widgets only where there are some.
func TestAMessageThatIsNotNamedFitsTheSurface(t *testing.T) {
	for path, want := range map[string]string{"/api/v1/widget/leads": "widget", "/api/v1/widget": "widget", "/v1/chat": "general"} {
		l := weir.Limiter{Routes: []weir.Route{{Path: "/other"}, {Path: path}}}
		if got := httplimit.MessageOf(&l); got != want {
			t.Errorf("a limiter of %s says %q, want %q", path, got, want)
		}
		if l.Message = "bulk-sync"; httplimit.MessageOf(&l) != "bulk-sync" {
			t.Errorf("a limiter of %s does not say what it names", path)
		}
	}
}
