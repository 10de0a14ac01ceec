package answer_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
)

// refused returns the language and the message of the 429 for an Accept-Language.
func refused(d *door, accept ...string) (language, message string) {
	d.Helper()
	a := new(answer.Answer)
	for range 2 {
		d.askInto(from("192.0.2.7", "Accept-Language", accept...), post("typing"), a)
	}
	if a.Status != http.StatusTooManyRequests {
		d.Fatalf("the status is %d, want 429", a.Status)
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
		d.Fatalf("the body is %s, %v", a.Body(), err)
	}
	return language, body.Error.Message
}

// once is a policy of one request for each address.
func once(t testing.TB, message string) weir.Policy {
	p := limiters(t, map[string][]string{"l /api/v1/widget/typing": {"1 per minute by ip"}})
	p.Limiters[0].Message = message
	return p
}

// Quality values as in RFC 9110, section 12.5.4, and English if nothing fits (D20).
func TestTheMessageIsInTheCallersLanguage(t *testing.T) {
	d := open(t, once(t, ""), answer.Options{})
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
		{[]string{"*, de"}, "de"},             // of equal weight, and named
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
		if got, message := refused(d, test.accept...); got != test.want {
			t.Errorf("Accept-Language %.60q is answered in %s (%s), want %s", test.accept, got, message, test.want)
		}
	}
}

// Every message has the contract's English sentence, and twelve other languages (D20).
func TestEveryMessageIsThereInEveryLanguage(t *testing.T) {
	languages := []string{"en", "de", "es", "fr", "it", "ja", "nl", "pl", "pt", "tr", "uk", "zh", "ar"}
	if got := answer.Messages(); !slices.Equal(got, []string{"bulk-sync", "general", "in-flight", "widget"}) {
		t.Errorf("the messages are %q", got)
	}
	for name, english := range map[string]string{"widget": widgetText, "bulk-sync": syncText, "general": "Too many requests. Please slow down.", "in-flight": flightText} {
		d := open(t, once(t, name), answer.Options{})
		seen := map[string]string{}
		for _, want := range languages {
			language, text := refused(d, want)
			if language != want || text == "" || seen[text] != "" {
				t.Errorf("%s in %s is %q in %s", name, want, text, language)
			}
			seen[text] = language
			if want == "en" && text != english {
				t.Errorf("%s in English is %q, want %q", name, text, english)
			}
			if got, ok := answer.Text(new(weir.Responses), name); !ok || got != english {
				t.Errorf("the text of %s is %q, want %q", name, got, english)
			}
		}
	}
}

// The cache of recent results is small, and different values share its entries. A result never
// depends on the values before.
func TestALanguageIsNeverAnothersAnswer(t *testing.T) {
	d := open(t, once(t, ""), answer.Options{})
	for i := range 2000 {
		accept, want := "x-q"+string(rune('a'+i%26))+", de;q=0.9", "de"
		if i%2 == 1 {
			accept, want = "x-q"+string(rune('a'+i%26))+", pl;q=0.9", "pl"
		}
		if got, _ := refused(d, accept); got != want {
			t.Fatalf("%q is answered in %s, want %s", accept, got, want)
		}
	}
}

func FuzzAnyAcceptLanguageIsAnswered(f *testing.F) {
	for _, s := range []string{"de-CH, de;q=0.9, *;q=0.1", "x-klingon;q=1", "en-u-ca-buddhist-x-y", ";;;,,,q=", "\x00\xff", "i-klingon, zh-min-nan, art-lojban", "und, mul"} {
		f.Add(s)
	}
	d := open(f, once(f, ""), answer.Options{})
	f.Fuzz(func(t *testing.T, accept string) {
		d := *d
		d.TB = t
		first, _ := refused(&d, accept)
		if again, _ := refused(&d, accept); first == "" || again != first {
			t.Fatalf("%q is answered in %q, then in %q", accept, first, again)
		}
	})
}

// A message that does not exist, and a key source that no caller has, are errors before the first
// request.
func TestAnUnservablePolicyIsRejected(t *testing.T) {
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
		options answer.Options
		want    string
	}{
		{nil, answer.Options{Identity: who}, `no decider: pass weir.New's`},
		{d, answer.Options{}, `limiter "l" has the message "wigdet": bulk-sync, general, in-flight, widget are allowed`},
		{d, answer.Options{Identity: who}, `limiter "l" has the message "wigdet": bulk-sync, general, in-flight, widget are allowed
limiter "l" counts by "tenant": the key sources here are ip, agent, session, token, header:NAME, path:NAME, cookie:NAME, query:NAME, host, claim:NAME, cert, everyone`},
	} {
		if _, err := answer.New(test.decider, test.options); err == nil || err.Error() != test.want {
			t.Errorf("the error is %v\nwant %s", err, test.want)
		}
	}
}
