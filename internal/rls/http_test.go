package rls

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/logtest"
)

func TestAnErrorOfJSONNamesTheFieldItsValueAndWhatIsAllowed(t *testing.T) {
	h := NewDoor(newService(t, Options{}), DoorOptions{}).Handler()
	for body, want := range map[string]string{
		`{"domian":"edge"}`:                  `unknown field "domian": domain, descriptors, hits_addend are allowed`,
		`{"domain":5}`:                       "domain is 5: a string is allowed",
		`{"hits_addend":-1,"domain":"edge"}`: "hits_addend is -1: a whole number from 0 to 4294967295 is allowed",
		`{"descriptors":{}}`:                 "descriptors is {}: a list is allowed",
		`{"descriptors":[{}, 5]}`:            "descriptors[1] is 5: an object is allowed",
		`{"descriptors":[null]}`:             "descriptors[0] is null: an object is allowed",
		`{"descriptors":[{"entries":[{"key":"a","value":true}]}]}`: "descriptors[0].entries[0].value is true: a string is allowed",
		`{"descriptors":[{"entries":[{"name":"a"}]}]}`:             `unknown field "descriptors[0].entries[0].name": key, value are allowed`,
		`{"descriptors":[{"limit":"a"}]}`:                          `descriptors[0].limit is "a": an object is allowed`,
		`{"descriptors":[{"limit":{"unit":"minute"}}]}`:            `descriptors[0].limit.unit is "minute": one of SECOND, MINUTE, HOUR, DAY, WEEK and MONTH is allowed`,
		`{"descriptors":[{"hitsAddend":{"value":1}}]}`:             `descriptors[0].hitsAddend is {"value":1}: a whole number from 0 to 18446744073709551615 is allowed`,
		`{"descriptors":[{"is_negative_hits":"yes"}]}`:             `descriptors[0].is_negative_hits is "yes": true or false is allowed`,
		`{"domain":"` + "\x01" + `"}`:                              "syntax error (line 1:11)",
		"{\"domain\":\"\xff\"}":                                    "(line 1:11): invalid UTF-8 in string",
		`{"domain":"a","domain":"b"}`:                              `(line 1:15): duplicate field "domain"`,
		`{"hitsAddend":1,"hits_addend":2}`:                         `duplicate field "hits_addend"`,
		`[]`:                                                       "it is []: an object is allowed",
		` 5 `:                                                      "it is 5: an object is allowed",
		"":                                                         "it is empty: an object is allowed",
		" \n":                                                      "it is empty: an object is allowed",
		`{"domain":"a",}`:                                          "syntax error (line 1:15): unexpected token }",
		`{"domain":["` + strings.Repeat("x", 1000) + "\"]}":   `domain is ["xxx`,
		`{"domain":null,"descriptors":null,"descriptors":[]}`: "duplicate field",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/json", strings.NewReader(body)))
		text := w.Body.String()
		if w.Code != 400 || !strings.HasPrefix(text, "the body is no envoy.service.ratelimit.v3.RateLimitRequest in JSON: ") || !strings.Contains(text, want) || len(text) > 400 {
			t.Errorf("%.80s: %d, %s; want %s", body, w.Code, text, want)
		}
	}
}

// Envoy forwards what is answered with an error, so the log has what to correct.
func TestRequestsWithErrorsAreLoggedOnceAMinute(t *testing.T) {
	log, now := new(logtest.Buffer), time.Unix(1e9, 0)
	s := newService(t, Options{Log: slog.New(slog.NewTextHandler(log, nil)), Now: func() time.Time { return now }})
	h := NewDoor(s, DoorOptions{}).Handler()
	post := func(body string) {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/json", strings.NewReader(body)))
	}
	wants := func(step string, want ...string) {
		t.Helper()
		text := log.Take()
		if strings.Contains(text, "s3cret") {
			t.Errorf("%s: the log has the value: %s", step, text)
		}
		if n := strings.Count(text, "\n"); n != min(len(want), 1) {
			t.Errorf("%s: the log has %d lines: %s", step, n, text)
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: the log lacks %s: %s", step, w, text)
			}
		}
	}
	ask(t, s, "user=a")
	wants("without an error")
	nine := make([]string, 9)
	for i := range nine {
		nine[i] = fmt.Sprintf("user=%d", i)
	}
	ask(t, s, nine...)
	wants("over gRPC", "level=WARN", "domain=edge", "more than 8 counts", "failure_mode_deny", "hint=", "others_since_the_last_line=0")
	ask(t, s, nine...)
	post(`{"domain":"edge"}`)
	wants("in the same minute")
	now = now.Add(time.Minute)
	post(`{"domain":"edge","descriptors":[]}`)
	wants("over HTTP", "domain=edge", "peer=192.0.2.1:1234", "descriptor list must not be empty", "others_since_the_last_line=2")
	now = now.Add(time.Minute)
	post(`{"domian":"edge"}`)
	wants("what is no request", `unknown field`, "peer=192.0.2.1:1234")
	for body, want := range map[string]string{ // without the values, which can be credentials
		`{"descriptors":[{"entries":[{"key":"authorization","value":["Bearer s3cret"]}]}]}`: "descriptors[0].entries[0].value has another value: a string is allowed",
		`{"descriptors":[{"entries":[{"key":"authorization","value":s3cret}]}]}`:            "its syntax is wrong (line 1:60)",
		`{"descriptors":[{"entries":["s3cret"]}]}`:                                          "descriptors[0].entries[0] has another value: an object is allowed",
		`{"descriptors":[{"entries":[{"key":"a","value":"s3cret\x"}]}]}`:                    "its syntax is wrong (line 1:",
		`"s3cret"`: "it has another value: an object is allowed",
	} {
		now = now.Add(time.Minute)
		post(body)
		wants(body, want, "RateLimitRequest in JSON: ")
	}
}

// protojson decides what is accepted; numbers can be strings.
func TestWhatJSONAcceptsHasNoError(t *testing.T) {
	h := NewDoor(newService(t, Options{}), DoorOptions{}).Handler()
	for _, body := range []string{
		` {"domain":"edge","hitsAddend":"1","descriptors":[{"entries":[{"key":"user","value":"a"}],"limit":null,"hits_addend":"1","isNegativeHits":false}]} `,
		`{"domain":"edge","hits_addend":1.0,"descriptors":[{"entries":[{"key":"user","value":"b"}],"limit":{"unit":2,"requests_per_unit":1e1,"unit_multiplier":1}}]}`,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/json", strings.NewReader(body)))
		if w.Code != 200 {
			t.Errorf("%s: %d, %s", body, w.Code, w.Body)
		}
	}
}
