package headers_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/headers"
)

// The response of every case was made at this second, 2026-11-22T04:26:25Z.
const madeAt = 1795321585

func values(lines ...string) func(string) []string {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h.Values
}

func three(reset string) []string {
	return []string{"X-RateLimit-Limit: 60", "X-RateLimit-Remaining: 7", "X-RateLimit-Reset: " + reset}
}

func TestAResetIsToldApartByItsForm(t *testing.T) {
	const minute = 60 * time.Second
	for reset, want := range map[string]headers.Standing{
		"60":      {After: minute, Plain: true},
		"1":       {After: time.Second, Plain: true},
		"0":       {Plain: true},
		"1.5":     {After: 1500 * time.Millisecond, Plain: true},
		"86400":   {After: 24 * time.Hour, Plain: true},
		"2764800": {After: headers.MaxReset, Plain: true},
		// No window is so many seconds long.
		"2764801":                        {After: 2764801 * time.Millisecond},
		"3600000":                        {After: time.Hour},
		"86400000":                       {After: 24 * time.Hour},
		"1795321645":                     {Reset: madeAt + 60},
		"1795321645.25":                  {Reset: madeAt + 61},
		"1795321645000":                  {Reset: madeAt + 60},
		"1795321644001":                  {Reset: madeAt + 60},
		"946684860":                      {Reset: 946684860}, // nine digits: the year 2000
		"2026-11-22T04:27:25Z":           {Reset: madeAt + 60},
		"2026-11-22T04:27:24.2Z":         {Reset: madeAt + 60},
		"2026-11-22T05:27:25+01:00":      {Reset: madeAt + 60},
		"2026-11-22T05:27:25+0100":       {Reset: madeAt + 60},
		"2026-11-22T04:27:25":            {Reset: madeAt + 60},
		"2026-11-22 04:27:25":            {Reset: madeAt + 60},
		"Sun, 22 Nov 2026 04:27:25 GMT":  {Reset: madeAt + 60},
		"Sunday, 22-Nov-26 04:27:25 GMT": {Reset: madeAt + 60},
		"1s":                             {After: time.Second},
		"6m0s":                           {After: 6 * time.Minute},
		"20ms":                           {After: 20 * time.Millisecond},
		"1h2m3.5s":                       {After: time.Hour + 2*time.Minute + 3500*time.Millisecond},
	} {
		t.Run(reset, func(t *testing.T) {
			want.Limit, want.Remaining = 60, 7
			got, err := headers.Read(values(three(reset)...), headers.Hint{Date: madeAt})
			if err != nil || got != want {
				t.Errorf("a Reset of %q is read as %+v, %v; want %+v", reset, got, err, want)
			}
		})
	}
}

func TestAResetThatIsNoneIsRefused(t *testing.T) {
	for _, reset := range []string{"", "soon", "-60", "+60", " 60", "60 ", "1.", ".5", "1.5.5", "1e3", "0x10", "NaN", "Inf", "-1s", "+1s", "1y", "99999999999999999999",
		"100000000000000", "2026-13-22T04:27:25Z", "1969-01-01T00:00:00Z", "Mon, 22 Nov 2026 04:27:25 GMT", "1,000", "١"} {
		got, err := headers.Read(values(three(reset)...), headers.Hint{Date: madeAt})
		var field *headers.FieldError
		if !errors.As(err, &field) || !strings.EqualFold(field.Field, headers.Reset) || got != (headers.Standing{}) {
			t.Errorf("a Reset of %q is read as %+v, %v", reset, got, err)
		}
	}
}

func TestMillisecondsLeftAreReadWhereTheResponseProvesThem(t *testing.T) {
	for name, c := range map[string]struct {
		limit string
		hint  headers.Hint
		want  time.Duration
		plain bool
	}{
		"nothing is known":                     {"60", headers.Hint{Date: madeAt}, 59873 * time.Second, true},
		"the window is a minute long":          {"60, 60;w=60", headers.Hint{}, 59873 * time.Millisecond, false},
		"the window is a day long":             {"60;w=86400", headers.Hint{}, 59873 * time.Second, true},
		"another window is a minute long":      {"60, 60;w=86400, 10;w=60", headers.Hint{}, 59873 * time.Second, true},
		"the window is a second long":          {"60;w=1", headers.Hint{}, 59873 * time.Second, true},
		"Retry-After is a minute":              {"60", headers.Hint{RetryAfter: time.Minute}, 59873 * time.Millisecond, false},
		"Retry-After is a second":              {"60", headers.Hint{RetryAfter: time.Second}, 59873 * time.Second, true},
		"Retry-After is as long as the Reset":  {"60", headers.Hint{RetryAfter: 59873 * time.Second}, 59873 * time.Second, true},
		"the clock of the server is not known": {"60", headers.Hint{}, 59873 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := headers.Read(values("X-RateLimit-Limit: "+c.limit, "X-RateLimit-Remaining: 7", "X-RateLimit-Reset: 59873"), c.hint)
			if err != nil || got.After != c.want || got.Plain != c.plain || got.Limit != 60 {
				t.Errorf("%s: 59873 is read as %+v, %v; want %v", name, got, err, c.want)
			}
		})
	}
}

// Each is a response as the named servers send it.
func TestTheDialectsThatServersSpeak(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		want  headers.Standing
	}{
		"GitHub": {[]string{"x-ratelimit-limit: 5000", "x-ratelimit-remaining: 4999", "x-ratelimit-used: 1", "x-ratelimit-reset: 1795325185", "x-ratelimit-resource: core"},
			headers.Standing{Name: "core", Limit: 5000, Remaining: 4999, Reset: madeAt + 3600}},
		"Envoy": {[]string{`x-ratelimit-limit: 10, 10;w=1;name="a, b";q=3, 1000;w=3600`, "x-ratelimit-remaining: 3", "x-ratelimit-reset: 1"},
			headers.Standing{Limit: 10, Remaining: 3, After: time.Second, Plain: true}},
		"Kong": {[]string{"RateLimit-Limit: 5", "RateLimit-Remaining: 4", "RateLimit-Reset: 35", "X-RateLimit-Limit-Minute: 5", "X-RateLimit-Remaining-Minute: 4"},
			headers.Standing{Limit: 5, Remaining: 4, After: 35 * time.Second, Plain: true}},
		"draft 3": {[]string{"RateLimit-Limit: 10, 10;w=1, 50;w=60", "RateLimit-Remaining: 9", "RateLimit-Reset: 1"},
			headers.Standing{Limit: 10, Remaining: 9, After: time.Second, Plain: true}},
		"draft 7": {[]string{"RateLimit: limit=100, remaining=50, reset=30", "RateLimit-Policy: 100;w=60"},
			headers.Standing{Limit: 100, Remaining: 50, After: 30 * time.Second}},
		"draft 10": {[]string{`RateLimit: "hour";r=40;t=900, "minute";r=3;t=30, "day";r=3;t=20`, `RateLimit-Policy: "minute";q=10;w=60, "hour";q=50;w=3600`},
			headers.Standing{Name: "minute", Limit: 10, Remaining: 3, After: 30 * time.Second}},
		"draft 10 without a policy": {[]string{`RateLimit: "default";r=50;t=30`},
			headers.Standing{Name: "default", Remaining: 50, After: 30 * time.Second}},
		"X": {[]string{"x-rate-limit-limit: 15", "x-rate-limit-remaining: 14", "x-rate-limit-reset: 1795322485"},
			headers.Standing{Limit: 15, Remaining: 14, Reset: madeAt + 900}},
		"Discord": {[]string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795321590.123", "X-RateLimit-Reset-After: 4.25", "X-RateLimit-Bucket: abcd1234"},
			headers.Standing{Name: "abcd1234", Limit: 5, After: 4250 * time.Millisecond}},
		"OpenAI": {[]string{"x-ratelimit-limit-requests: 60", "x-ratelimit-limit-tokens: 150000", "x-ratelimit-remaining-requests: 59", "x-ratelimit-remaining-tokens: 149984",
			"x-ratelimit-reset-requests: 1s", "x-ratelimit-reset-tokens: 6m0s"},
			headers.Standing{Limit: 60, Remaining: 59, After: time.Second}},
		"OpenAI, all tokens spent": {[]string{"x-ratelimit-limit-requests: 60", "x-ratelimit-limit-tokens: 150000", "x-ratelimit-remaining-requests: 59", "x-ratelimit-remaining-tokens: 0",
			"x-ratelimit-reset-requests: 1s", "x-ratelimit-reset-tokens: 6m0s"},
			headers.Standing{Limit: 150000, After: 6 * time.Minute}},
		"Anthropic": {[]string{"anthropic-ratelimit-requests-limit: 50", "anthropic-ratelimit-requests-remaining: 49", "anthropic-ratelimit-requests-reset: 2026-11-22T04:26:27Z",
			"anthropic-ratelimit-tokens-limit: 50000", "anthropic-ratelimit-tokens-remaining: 48000", "anthropic-ratelimit-tokens-reset: 2026-11-22T04:26:29Z"},
			headers.Standing{Limit: 50, Remaining: 49, Reset: madeAt + 2}},
		"one that speaks two": {[]string{"RateLimit: limit=100, remaining=50, reset=30", "X-RateLimit-Limit: 100", "X-RateLimit-Remaining: 50", "X-RateLimit-Reset: 1795321616"},
			headers.Standing{Limit: 100, Remaining: 50, After: 30 * time.Second}},
		"one that is broken beside another": {[]string{"RateLimit: nonsense", "X-RateLimit-Limit: 100", "X-RateLimit-Remaining: 50", "X-RateLimit-Reset: 1795321616"},
			headers.Standing{Limit: 100, Remaining: 50, Reset: madeAt + 31}},
		"Weir's, both": {[]string{`RateLimit: "a 60s by ip";r=5;t=60`, `RateLimit-Policy: "a 60s by ip";q=30;w=60`, "X-RateLimit-Limit: 30", "X-RateLimit-Remaining: 5", "X-RateLimit-Reset: 1795321645"},
			headers.Standing{Name: "a 60s by ip", Limit: 30, Remaining: 5, After: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := headers.Read(values(c.lines...), headers.Hint{Date: madeAt}); err != nil || got != c.want {
				t.Errorf("%s: %+v, %v\nwant %+v", name, got, err, c.want)
			}
		})
	}
}

func TestAResponseThatSpeaksNoDialect(t *testing.T) {
	for name, lines := range map[string][]string{
		"nothing":       nil,
		"one of three":  {"X-RateLimit-Remaining: 0"},
		"two of three":  {"RateLimit-Remaining: 0", "RateLimit-Reset: 60"},
		"an empty list": {"RateLimit: "},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := headers.Read(values(lines...), headers.Hint{}); got != (headers.Standing{}) || err == nil {
				t.Errorf("%s is read as %+v, %v", name, got, err)
			}
		})
	}
	for name, lines := range map[string][]string{
		"a field twice":        append(three("60"), "X-RateLimit-Reset: 60"),
		"a limit twice":        append(three("60"), "X-RateLimit-Limit: 60"),
		"a limit of 0":         {"RateLimit-Limit: 0", "RateLimit-Remaining: 0", "RateLimit-Reset: 60"},
		"a negative Remaining": {"RateLimit-Limit: 10", "RateLimit-Remaining: -1", "RateLimit-Reset: 60"},
		"a dictionary of two":  {"RateLimit: limit=100, remaining=50"},
		"an open string":       {`RateLimit: "a;r=5;t=60`},
	} {
		t.Run(name, func(t *testing.T) {
			var field *headers.FieldError
			if got, err := headers.Read(values(lines...), headers.Hint{}); !errors.As(err, &field) {
				t.Errorf("%s is read as %+v, %v", name, got, err)
			}
		})
	}
}

func TestRetryAfterMayHaveAFractionAndBeADate(t *testing.T) {
	const date = "Date: Sun, 22 Nov 2026 04:26:25 GMT"
	for value, want := range map[string]time.Duration{
		"7": 7 * time.Second, "1.5": 1500 * time.Millisecond, "0.001": time.Millisecond, "0": 0, "120.0": 2 * time.Minute,
		"Sun, 22 Nov 2026 04:27:25 GMT": time.Minute, "Sun, 22 Nov 2026 04:25:25 GMT": 0, "2026-11-22T04:26:32Z": 7 * time.Second,
	} {
		t.Run(value, func(t *testing.T) {
			if got, err := headers.ReadRetryAfter(values(date, "Retry-After: "+value)); err != nil || got != want {
				t.Errorf("Retry-After: %s is read as %v, %v; want %v", value, got, err, want)
			}
		})
	}
	for _, value := range []string{"", "soon", "-7", "+7", "1.", ".5", "1e2", "99999999999", "99999999999999999999"} {
		if got, err := headers.ReadRetryAfter(values(date, "Retry-After: "+value)); err == nil {
			t.Errorf("Retry-After: %s is read as %v", value, got)
		}
	}
	if got, err := headers.ReadRetryAfter(values("Retry-After: Sun, 22 Nov 2026 04:27:25 GMT")); err == nil {
		t.Errorf("a date without a Date is read as %v", got)
	}
	if got, err := headers.ReadRetryAfter(values(date)); err != nil || got != 0 {
		t.Errorf("no Retry-After is read as %v, %v", got, err)
	}
}

// Whatever a stranger sends, a Standing is one that arithmetic can be done with, and a plain number
// of seconds is never longer than a window can be.
func FuzzRead(f *testing.F) {
	f.Add("60", "7", "60", `"a";r=5;t=60`, "7", int64(madeAt))
	f.Add("10, 10;w=60", "0", "1795321645.5", "limit=1, remaining=0, reset=9", "1.5", int64(0))
	f.Add("5", "0", "2026-11-22T04:27:25Z", "", "Sun, 22 Nov 2026 04:27:25 GMT", int64(1))
	f.Add("5", "0", "6m0s", `"a";r=999999999999999;t=999999999999999`, "99999999999999", int64(madeAt))
	f.Fuzz(func(t *testing.T, limit, remaining, reset, list, retry string, date int64) {
		h := http.Header{"Ratelimit": {list}, "X-Ratelimit-Limit": {limit}, "X-Ratelimit-Remaining": {remaining}, "X-Ratelimit-Reset": {reset},
			"Retry-After": {retry}, "Date": {"Sun, 22 Nov 2026 04:26:25 GMT"}}
		after, err := headers.ReadRetryAfter(h.Values)
		if after < 0 || err != nil && after != 0 {
			t.Errorf("Retry-After: %q is read as %v, %v", retry, after, err)
		}
		s, err := headers.Read(h.Values, headers.Hint{Date: max(date, 0), RetryAfter: after})
		switch {
		case err != nil && s != (headers.Standing{}):
			t.Errorf("%+v beside %v", s, err)
		case s.Limit < 0 || s.Remaining < 0 || s.Reset < 0 || s.After < 0 || s.Reset > 0 && s.After > 0:
			t.Errorf("%q %q %q %q is read as %+v", limit, remaining, reset, list, s)
		case s.Plain && s.After > headers.MaxReset:
			t.Errorf("%q seconds are left: %+v", reset, s)
		}
	})
}
