package accesslog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/accesslog"
)

func TestMalformedLinesSayWhatIsWrong(t *testing.T) {
	const at = "[01/Mar/2026:12:00:00 +0000]"
	good := map[string]string{ // a first line that determines the format
		"common":                                `192.0.2.1 - - ` + at + ` "GET / HTTP/1.1" 200 1`,
		"combined":                              `192.0.2.1 - - ` + at + ` "GET / HTTP/1.1" 200 1 "-" "-"`,
		"traefik":                               `192.0.2.1 - - ` + at + ` "GET / HTTP/1.1" 200 1 "-" "-" 1 "-" "-" 0ms`,
		"weir":                                  `time=2026-03-01T12:00:00.000Z client=192.0.2.1 method=GET path=/ status=200`,
		"caddy":                                 `{"ts":1,"request":{"remote_ip":"192.0.2.1","method":"GET","uri":"/"},"status":200}`,
		"nginx-json":                            `{"msec":1,"remote_addr":"192.0.2.1","request":"GET / HTTP/1.1","status":200,"request_time":0}`,
		"weir-json":                             `{"time":"2026-03-01T12:00:00.000Z","client":"192.0.2.1","method":"GET","path":"/","status":200,"outcome":"admitted"}`,
		"$msec|$request|$request_time|$status|": "1.000|GET / HTTP/1.1|0.001|200|",
	}
	for _, test := range []struct{ format, text, reason string }{
		{"combined", `hello`, `no time in brackets`},
		{"combined", `192.0.2.1 - - [today] "GET / HTTP/1.1" 200 1 "-" "-"`, `no request in quotes after a time in brackets`},
		{"combined", `192.0.2.1 - - ` + at + ` GET / 200 1`, `no request in quotes after a time in brackets`},
		{"combined", `192.0.2.1 - - [31/Feb/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, `time "31/Feb/2026:12:00:00 +0000" is not a valid time, such as 10/Oct/2000:13:55:36 -0700`},
		{"combined", `192.0.2.1 - - [29/Feb/2025:12:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, `time "29/Feb/2025:12:00:00 +0000" is not a valid time, such as 10/Oct/2000:13:55:36 -0700`},
		{"combined", `192.0.2.1 - - [01/Mrz/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, `time "01/Mrz/2026:12:00:00 +0000" is not a valid time, such as 10/Oct/2000:13:55:36 -0700`},
		{"combined", `192.0.2.1 - - [01/Mar/2026:24:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, `time "01/Mar/2026:24:00:00 +0000" is not a valid time, such as 10/Oct/2000:13:55:36 -0700`},
		{"combined", `192.0.2.1 - - [01/Mar/2026:12:00:61 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, `time "01/Mar/2026:12:00:61 +0000" is not a valid time, such as 10/Oct/2000:13:55:36 -0700`},
		{"combined", `192.0.2.1 - - [01/Mar/1969:12:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, `time "01/Mar/1969:12:00:00 +0000" is not a valid time, such as 10/Oct/2000:13:55:36 -0700`},
		{"combined", `192.0.2.1 - - [01/Mar/2026:12:00:00 *0000] "GET / HTTP/1.1" 200 1 "-" "-"`, `time "01/Mar/2026:12:00:00 *0000" is not a valid time, such as 10/Oct/2000:13:55:36 -0700`},
		{"combined", `192.0.2.1 ` + at + ` "GET / HTTP/1.1" 200 1 "-" "-"`, `no address, identity and user before the time`},
		{"combined", `192.0.2.1 - ` + at + ` "GET / HTTP/1.1" 200 1 "-" "-"`, `no identity and user after the address`},
		{"combined", `192.0.2.1 - - ` + at + ` "GET / HT`, `the request has no closing quote`},
		{"combined", `192.0.2.1 - - ` + at + ` "GET / HTTP/1.1\" 200 1 `, `the request has no closing quote`},
		{"combined", `192.0.2.1 - - ` + at + ` "GET / HTTP/1.1"`, `no status after the request`},
		{"combined", `192.0.2.1 - - ` + at + ` "GET / HTTP/1.1" abc 1 "-" "-"`, `status "abc" is not a number of three digits`},
		{"combined", `192.0.2.1 - - ` + at + ` "GET / HTTP/1.1" 20 1 "-" "-"`, `status "20" is not a number of three digits`},
		{"combined", `192.0.2.1 - - ` + at + ` "GET / HTTP/1.1" 200`, `no size after the status`},
		{"combined", `192.0.2.1 - - ` + at + ` "GET / HTTP/1.1" 200 1k "-" "-"`, `size "1k" is not a number`},
		{"combined", `192.0.2.1 - - ` + at + ` "GET / HTTP/1.1" 200 1`, `no referrer in quotes after the size`},
		{"combined", `192.0.2.1 - - ` + at + ` "GET / HTTP/1.1" 200 1 "-" "cur`, `no user agent in quotes after the referrer`},
		{"combined", "\x00\x00\x00", `only NUL bytes, as after a crash`},
		{"common", `192.0.2.1 - - ` + at + ` "GET / HTTP/1.1" 200 1 2`, `more after the size than the common format has`},
		{"traefik", `192.0.2.1 - - ` + at + ` "GET / HTTP/1.1" 200 1 "-" "-" 1 "-" "-"`, `no referrer, user agent, number, router, server and duration after the size`},
		{"weir", `time=2026-03-01T12:00:00.000Z level=WARN lines=7`, `not a request: it has no client=`},
		{"weir", `time=2026-03-01T12:00:00.000Z client=192.0.2.1 method=GET path=/ status=2x0`, `status "2x0" is not a number of three digits`},
		{"weir", `time=now client=192.0.2.1 method=GET path=/ status=200`, `time "now" is not a valid time, such as 2000-10-10T13:55:36.123Z`},
		{"weir", `time=2026-03-01T12:00:00.000Z client=192.0.2.1 method=GET path=/ path=/ status=200`, `path= occurs twice`},
		{"weir", `time=2026-03-01T12:00:00.000Z client=192.0.2.1 method=GET path="/`, `the value of "path" has no closing quote`},
		{"caddy", `{"level":"info","ts":1.5,"msg":"serving initial configuration"}`, `not a request: it has no value "request.method"`},
		{"caddy", `{"ts":1,"request":{"remote_ip":"192.0.2.1","method":"GET","uri":"/"},"sta`, `not valid JSON: `},
		{"caddy", `{"ts":1,"ts":2,"request":{"remote_ip":"192.0.2.1","method":"GET","uri":"/"}}`, `not valid JSON: `},
		{"caddy", `{"ts":1,"request":{"remote_ip":"192.0.2.1","method":"GET","uri":"/"}} x`, `more after the JSON object`},
		{"caddy", `[]`, `not a JSON object`},
		{"caddy", `{"request":{"remote_ip":"192.0.2.1","method":"GET","uri":"/"}}`, `no time in it`},
		{"caddy", `{"ts":-1,"request":{"remote_ip":"192.0.2.1","method":"GET","uri":"/"}}`, `time "-1" has no known format`},
		{"caddy", `{"ts":1,"request":{"remote_ip":"192.0.2.1","method":"GET","uri":"/"},"duration":"long"}`, `duration "long" is not valid`},
		{"caddy", `{"ts":1,"request":{"remote_ip":"192.0.2.1","method":"GET","uri":"/"},"status":1000}`, `status "1000" is not a number of three digits`},
		{"nginx-json", `{"msec":1,"request":"GET /\x22 HTTP/1.1"}`, `not valid JSON (nginx writes it with escape=json only): `},
		{"nginx-json", `{"msec":1,"remote_addr":"192.0.2.1"}`, `not a request: no method and path in it`},
		{"weir-json", `{"time":"2026-03-01T12:00:00.000Z","level":"WARN","lines":7}`, `not a request: it has no value "outcome"`},
		{"$msec|$request|$request_time|$status|", `1.000|GET / HTTP/1.1|0.001`, `no "|" after $request_time`},
		{"$msec|$request|$request_time|$status|", `1.000|GET / HTTP/1.1|soon|200|`, `duration "soon" is not a number of seconds`},
		{"$msec|$request|$request_time|$status|", `1.000|GET / HTTP/1.1|0.001|200|x`, `no "|" after $status`},
		{"$msec|$request|$request_time|$status|", `x|GET / HTTP/1.1|0.001|200|`, `time "x" has no known format`},
	} {
		var malformed []accesslog.Malformed
		o := accesslog.Options{Format: test.format, Stdin: strings.NewReader(good[test.format] + "\n" + test.text + "\n"),
			Malformed: func(m accesslog.Malformed) {
				m.Text = slices.Clone(m.Text)
				malformed = append(malformed, m)
			}}
		lines := readAll(t, o)
		if lines != 1 || len(malformed) != 1 {
			t.Errorf("%s: %s\n%d lines are read, malformed %v", test.format, test.text, lines, malformed)
			continue
		}
		m := malformed[0]
		if m.File != "-" || m.Line != 2 || string(m.Text) != test.text[:min(len(test.text), 200)] ||
			m.Reason != test.reason && !(strings.HasSuffix(test.reason, ": ") && strings.HasPrefix(m.Reason, test.reason)) {
			t.Errorf("%s: %s\nis reported as %s:%d: %q: %s\nwant %s", test.format, test.text, m.File, m.Line, m.Text, m.Reason, test.reason)
		}
	}
}

// Bytes after the shown part of a line may be a secret, and of any length: no reason quotes them.
func TestReasonsAreShortAndTellNothingThatTheTextDoesNot(t *testing.T) {
	const at, secret = "[01/Mar/2026:12:00:00 +0000]", "wpt_abc_SECRET"
	pad, long := strings.Repeat("p", 300), strings.Repeat("z", 900_000)
	good := map[string]string{
		"combined":                              `192.0.2.1 - - ` + at + ` "GET / HTTP/1.1" 200 1 "-" "-"`,
		"vhost_combined":                        `shop.example.com 192.0.2.1 - - ` + at + ` "GET / HTTP/1.1" 200 1 "-" "-"`,
		"weir":                                  `time=2026-03-01T12:00:00.000Z client=192.0.2.1 method=GET path=/ status=200`,
		"caddy":                                 `{"ts":1,"request":{"remote_ip":"192.0.2.1","method":"GET","uri":"/"},"status":200}`,
		"$msec|$request|$request_time|$status|": "1.000|GET / HTTP/1.1|0.001|200|",
	}
	for format, lines := range map[string][]string{
		"combined": {`192.0.2.1 - - ` + at + ` "GET /` + pad + ` HTTP/1.1" ` + secret + ` 1 "-" "-"`,
			`192.0.2.1 - - ` + at + ` "GET / HTTP/1.1" 200 ` + long + ` "-" "-"`, `192.0.2.1 - - ` + at + ` "GET /` + pad + ` HTTP/1.1" 200 ` + secret + ` "-" "-"`},
		"vhost_combined": {pad + ` ` + secret + ` - - ` + at + ` "GET / HTTP/1.1" 200 1 "-" "-"`, `h ` + long + ` - - ` + at + ` "GET / HTTP/1.1" 200 1 "-" "-"`},
		"weir":           {`a=` + pad + ` ` + secret + `="x`, `a=` + pad + ` ` + secret, `a=` + pad + ` ` + secret + `="x"y`, long + `="`},
		"caddy": {`{"a":"` + pad + `","` + secret + `":1,"` + secret + `":1}`, `{"a":"` + pad + `","ts":"` + secret + `","request":{"method":"GET","uri":"/"}}`,
			`{"a":"` + pad + `","` + secret + `":{"b":x}}`, `{"` + long + `":x}`},
		"$msec|$request|$request_time|$status|": {`1.000|GET /` + pad + ` HTTP/1.1|` + secret + `|200|`, long + `|GET / HTTP/1.1|0.001|200|`},
	} {
		t.Run(format, func(t *testing.T) {
			for _, line := range lines {
				var reasons []string
				readAll(t, accesslog.Options{Format: format, Stdin: strings.NewReader(good[format] + "\n" + line + "\n"),
					Malformed: func(m accesslog.Malformed) { reasons = append(reasons, m.Reason) }})
				if len(reasons) != 1 || len(reasons[0]) > 200 || strings.Contains(reasons[0], "SECRET") {
					t.Errorf("%s: %.40s...: reported %.300q", format, line, reasons)
				}
			}
		})
	}
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]string{
		`"2026-03-01T12:00:00Z"`:           "2026-03-01T12:00:00Z",
		`"2026-03-01T12:00:00.5+01:30"`:    "2026-03-01T10:30:00.5Z",
		`"2026-03-01T12:00:00,123456789Z"`: "2026-03-01T12:00:00.123456789Z",
		`"2026-03-01 12:00:00 -0700"`:      "",
		`"2026-03-01 12:00:00-0700"`:       "2026-03-01T19:00:00Z",
		`"2026/03/01 12:00:00.25"`:         "2026-03-01T12:00:00.25Z",
		`"01/Mar/2026:12:00:00 -0100"`:     "2026-03-01T13:00:00Z",
		`"[01/Mar/2026:12:00:00 +0000]"`:   "2026-03-01T12:00:00Z",
		`"31/Dec/2016:23:59:60 +0000"`:     "2017-01-01T00:00:00Z",
		`1772366400`:                       "2026-03-01T12:00:00Z",
		`1772366400.123`:                   "2026-03-01T12:00:00.123Z",
		`1772366400.1234567891`:            "2026-03-01T12:00:00.123456789Z",
		`1772366400123`:                    "2026-03-01T12:00:00.123Z",
		`1772366400123.75`:                 "2026-03-01T12:00:00.12375Z",
		`1772366400123456`:                 "2026-03-01T12:00:00.123456Z",
		`1772366400123456789`:              "2026-03-01T12:00:00.123456789Z",
		`"1772366400.5"`:                   "2026-03-01T12:00:00.5Z",
		`17723664001234567890`:             "",
		`99999999999`:                      "",
		`"2026-02-30T12:00:00Z"`:           "",
		`"2026-13-01T12:00:00Z"`:           "",
		`"2026-03-01T12:00:00."`:           "",
		`"2026-03-01T12:00:00.5X"`:         "",
		`"2026-03-01T12:00"`:               "",
		`"9999-03-01T12:00:00Z"`:           "",
		`""`:                               "",
		`"-"`:                              "",
		`true`:                             "",
		`{"a":1}`:                          "",
	} {
		t.Run(text, func(t *testing.T) {
			first := `{"ts":1,"request":{"method":"GET","uri":"/"}}` + "\n"
			var got []string
			r, err := accesslog.Open(accesslog.Options{Format: "caddy", Reorder: -1,
				Stdin: strings.NewReader(first + fmt.Sprintf(`{"ts":%s,"request":{"method":"GET","uri":"/"}}`, text))})
			if err != nil {
				t.Fatal(err)
			}
			var l accesslog.Line
			for r.Next(&l) == nil {
				got = append(got, time.Unix(0, l.Time).UTC().Format(time.RFC3339Nano))
			}
			if want == "" && len(got) != 1 || want != "" && (len(got) != 2 || got[1] != want) {
				t.Errorf("%s is read as %v, want %q", text, got[1:], want)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
