package accesslog_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/accesslog"
)

// ownText is the combined standard output and standard error of a Weir server.
const ownText = `listening  http://127.0.0.1:8080
policy     the contract (built in), 8 limiters

A visitor begins a session and sends leads; widget-leads lets 30 through. Paste:

    SESSION=$(curl -sS http://127.0.0.1:8080/api/v1/widget/init)

time=2026-03-01T12:00:00.000Z level=INFO msg="sample backend: made workspace" workspace=demo
time=2026-03-01T12:00:00.016Z level=INFO msg=serving address=127.0.0.1:8080
ready
time=2026-03-01T12:00:01.000Z client=192.0.2.1 method=GET path=/a status=200 bytes=1 duration=1.000ms limiter=a agent=0123456789ABCDEF outcome=admitted host=h proto=HTTP/1.1
time=2026-03-01T12:00:01.500Z level=WARN msg="a request came with X-Forwarded-For" peer="192.0.2.1:1" path=/x path=/y
time=2026-03-01T12:00:02.000Z client=192.0.2.1 method=GET path=/b status=200 bytes=1 duration=1.000ms outcome=unlimited host=h proto=HTTP/1.1
time=2026-03-01T12:00:02.250Z level=WARN msg="access log lines dropped" lines=7
time=2026-03-01T12:00:02.500Z level=INFO msg="drained, good-bye"
`

// ownJSON is the same with --log-format json.
const ownJSON = `listening  http://127.0.0.1:8080
ready
{"time":"2026-03-01T12:00:00.016Z","level":"INFO","msg":"serving","address":"127.0.0.1:8080"}
{"time":"2026-03-01T12:00:01.000Z","client":"192.0.2.1","method":"GET","path":"/a","status":200,"bytes":1,"duration_ms":1.000,"limiter":"a","agent":"0123456789ABCDEF","outcome":"admitted","host":"h","proto":"HTTP/1.1"}
{"time":"2026-03-01T12:00:02.000Z","client":"192.0.2.1","method":"GET","path":"/b","status":200,"bytes":1,"duration_ms":1.000,"outcome":"unlimited","host":"h","proto":"HTTP/1.1"}
{"time":"2026-03-01T12:00:02.250Z","level":"WARN","msg":"access log lines dropped","lines":7}
{"time":"2026-03-01T12:00:02.500Z","level":"INFO","msg":"drained, good-bye"}
`

func TestWhatAServerSaysOfItselfIsNotMalformed(t *testing.T) {
	for text, format := range map[string]string{ownText: "weir", ownJSON: "weir-json"} {
		for _, given := range []string{"auto", format} {
			o := accesslog.Options{Format: given, Stdin: strings.NewReader(text),
				Malformed: func(m accesslog.Malformed) { t.Errorf("%s, line %d: %s: %q", format, m.Line, m.Reason, m.Text) }}
			found, _, stats := targets(t, o)
			if strings.Join(found, " ") != "/a /b" || stats.Formats[0] != format || stats.Dropped != 7 {
				t.Errorf("%s: %v, %+v", format, found, stats)
			}
			if want := int64(strings.Count(text, "\n") - strings.Count(text, "\n\n") - 2); stats.Own != want || stats.Lines != want+2 {
				t.Errorf("%s: %d lines of its own among %d, want %d", format, stats.Own, stats.Lines, want)
			}
		}
	}
}

// A message may have the keys of a request, and what a server prints at its start has no time.
func TestAMessageAboutARequestIsNotMalformed(t *testing.T) {
	const printed = "warning: variable WEIR_PORT belongs to no flag\nhint: is it spelled as the flag?\n"
	for format, text := range map[string]string{
		"weir": printed + ownText + `time=2026-03-01T12:00:02.600Z level=WARN msg="the upstream is not available" method=POST upstream=192.0.2.9:80 error="the connection was closed before an answer came"
time=2026-03-01T12:00:02.700Z level=ERROR msg="a handler panicked" client=192.0.2.1 method=GET path=/a status=500 error="a=b outcome=c"
warning: the policy has a limiter that no request meets
`,
		"weir-json": printed + ownJSON + `{"time":"2026-03-01T12:00:02.600Z","level":"WARN","msg":"the upstream is not available","method":"POST","upstream":"192.0.2.9:80"}
{"time":"2026-03-01T12:00:02.700Z","level":"ERROR","msg":"a handler panicked","client":"192.0.2.1","method":"GET","path":"/a","status":500}
warning: the policy has a limiter that no request meets
`,
	} {
		for _, given := range []string{"auto", format} {
			o := accesslog.Options{Format: given, Stdin: strings.NewReader(text),
				Malformed: func(m accesslog.Malformed) { t.Errorf("%s, line %d: %s: %q", format, m.Line, m.Reason, m.Text) }}
			if found, _, stats := targets(t, o); strings.Join(found, " ") != "/a /b" || stats.Formats[0] != format {
				t.Errorf("%s: %v, %+v", format, found, stats)
			}
		}
	}
}

func TestALogOfAServerThatWasAskedNothingIsNoError(t *testing.T) {
	_, requests, _ := strings.Cut(ownText, "ready\n")
	_, end, _ := strings.Cut(requests, "outcome=unlimited")
	_, end, _ = strings.Cut(end, "\n")
	found, _, stats := targets(t, accesslog.Options{Stdin: strings.NewReader(end)})
	if len(found) != 0 || stats.Formats[0] != "weir" || stats.Own != 2 || stats.Malformed != 0 {
		t.Errorf("%v, %+v", found, stats)
	}
}

func TestAfterABannerTheRestOfALineIsMalformedAsEver(t *testing.T) {
	_, _, stats := targets(t, accesslog.Options{Stdin: strings.NewReader(ownText + "ready\nlistening\n")})
	if stats.Malformed != 2 {
		t.Errorf("%+v", stats)
	}
}

// tells returns, for each line, whether it has an agent, and which.
func tells(t *testing.T, text, format string) (all []string) {
	t.Helper()
	r, err := accesslog.Open(accesslog.Options{Stdin: strings.NewReader(text), Format: format})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for l := (accesslog.Line{}); r.Next(&l) == nil; {
		switch {
		case l.Agent != nil:
			all = append(all, "#"+string(l.Agent))
		case l.UserAgent != nil:
			all = append(all, string(l.UserAgent))
		case l.HasAgent:
			all = append(all, "none")
		default:
			all = append(all, "?")
		}
	}
	return all
}

func TestALineTellsWhetherItsAgentIsMissingOrNone(t *testing.T) {
	const clf = `192.0.2.1 - - [01/Mar/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1`
	caddy := func(headers string) string {
		return `{"ts":1,"request":{"remote_ip":"192.0.2.1","method":"GET","uri":"/","headers":{` + headers + `}},"status":200}` + "\n"
	}
	nginx := func(agent string) string {
		return `{"msec":1,"remote_addr":"192.0.2.1","request":"GET / HTTP/1.1"` + agent + "}\n"
	}
	for _, test := range []struct{ name, format, text, want string }{
		{"the common format has no place for it", "", clf + "\n", "?"},
		{"the combined format has", "", clf + ` "-" "curl"` + "\n" + clf + ` "-" "-"` + "\n" + clf + ` "-" ""` + "\n", "curl none none"},
		{"a log_format without it", `$remote_addr $msec "$request"`, "192.0.2.1 1.000 \"GET / HTTP/1.1\"\n", "?"},
		{"a log_format with it", `$msec "$request" "$http_user_agent"`, "1.000 \"GET / HTTP/1.1\" \"-\"\n", "none"},
		{"JSON that has it empty", "", nginx(`,"http_user_agent":""`) + nginx(`,"http_user_agent":null`) + nginx(`,"http_user_agent":"-"`), "none none none"},
		{"JSON that never has it", "", nginx("") + nginx(""), "? ?"},
		{"JSON that leaves it out if there is none", "", caddy("") + caddy(`"User-Agent":["curl"]`) + caddy(""), "none curl none"},
		{"Weir's own has it of requests that were counted by it", "", ownText, "#0123456789ABCDEF ?"},
		{"and as JSON", "", ownJSON, "#0123456789ABCDEF ?"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := strings.Join(tells(t, test.text, test.format), " "); got != test.want {
				t.Errorf("%s: %s, want %s", test.name, got, test.want)
			}
		})
	}
}

// The fields that can be switched off change nothing of what is read.
func TestALineWithEveryFieldIsRead(t *testing.T) {
	const (
		text = `time=2026-03-01T12:00:01.000Z client=192.0.2.1 method=GET path=/a status=429 bytes=1 duration=1.000ms limiter=a agent=0123456789ABCDEF reserved=10 cost=12 overrun=2 outcome=refused host=h proto=HTTP/1.1 ` +
			`user_agent="curl \"x\" status=200" upstream=https://b:443 upstream_time=1.500ms request_id="a b" traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 denial=AVs8 caller=0000000000000002 aborted=true` + "\n"
		object = `{"time":"2026-03-01T12:00:01.000Z","client":"192.0.2.1","method":"GET","path":"/a","status":429,"bytes":1,"duration_ms":1.000,"limiter":"a","agent":"0123456789ABCDEF","reserved":10,"cost":12,"overrun":2,"outcome":"refused","host":"h","proto":"HTTP/1.1",` +
			`"user_agent":"curl \"x\" status=200","upstream":"https://b:443","upstream_time_ms":1.500,"request_id":"a b","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","denial":"AVs8","caller":"0000000000000002","aborted":true}` + "\n"
	)
	for format, log := range map[string]string{"weir": text, "weir-json": object} {
		got := told(t, accesslog.Options{Stdin: strings.NewReader(log), Fields: []string{"user_agent", "request_id", "denial", "caller"}})
		const want = `1 2026-03-01T12:00:01Z peer="192.0.2.1" method="GET" target="/a" agent="" status=429 user_agent="curl \"x\" status=200" request_id="a b" denial="AVs8" caller="0000000000000002"` + "\n"
		if !strings.HasPrefix(got, `1 2026-03-01T12:00:01Z peer="192.0.2.1" method="GET" target="/a" `) || !strings.HasSuffix(got, want[strings.Index(want, "status=429"):]) {
			t.Errorf("%s: got\n%swant\n%s", format, got, want)
		}
	}
}
