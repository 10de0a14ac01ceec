package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/logtest"
)

var sampleEntry = entry{
	start: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), client: netip.MustParseAddr("203.0.113.7"), method: "POST",
	path: "/api/v1/widget/leads", status: 201, bytes: 1234, duration: 1234567 * time.Nanosecond, limiter: "widget-leads",
	outcome: answer.Admitted, host: "weir.test", proto: "HTTP/1.1",
}

func logged(t *testing.T, format LogFormat, entries ...entry) string {
	t.Helper()
	var out logtest.Buffer
	l := NewAccessLog(&out, format, nil)
	for i := range entries {
		l.add(&entries[i], AllLogFields)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestAccessLogLines(t *testing.T) {
	const want = "time=2026-01-02T03:04:05.006Z client=203.0.113.7 method=POST path=/api/v1/widget/leads status=201 bytes=1234 duration=1.234ms " +
		"limiter=widget-leads outcome=admitted host=weir.test proto=HTTP/1.1\n"
	if got := logged(t, LogText, sampleEntry); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	const wantJSON = `{"time":"2026-01-02T03:04:05.006Z","client":"203.0.113.7","method":"POST","path":"/api/v1/widget/leads","status":201,"bytes":1234,` +
		`"duration_ms":1.234,"limiter":"widget-leads","outcome":"admitted","host":"weir.test","proto":"HTTP/1.1"}` + "\n"
	if got := logged(t, LogJSON, sampleEntry); got != wantJSON {
		t.Errorf("got  %swant %s", got, wantJSON)
	}
	bare := entry{start: sampleEntry.start, method: "GET", path: "/", status: 499, proto: "HTTP/2.0", aborted: true}
	if got := logged(t, LogText, bare); !strings.HasSuffix(got, "outcome=unlimited host=\"\" proto=HTTP/2.0 aborted=true\n") {
		t.Errorf("got %s", got)
	}
}

// A hostile value can neither end its line nor start another key.
func FuzzNoValueForgesALine(f *testing.F) {
	for _, s := range []string{"/a", "a b", "x\ny=1", `"`, `\`, "\x1b[2J", "a=b", "\x00", "\u2028", "\xff", strings.Repeat("x", 2000), "/eyJ.a.b", ""} {
		f.Add(s, s, s)
	}
	f.Fuzz(func(t *testing.T, method, path, host string) {
		e := sampleEntry
		e.method, e.path, e.host = method, path, host
		text := logged(t, LogText, e)
		if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, " proto=HTTP/1.1\n") {
			t.Fatalf("%q", text)
		}
		for i := range len(text) - 1 {
			if text[i] < ' ' || text[i] >= 0x7f {
				t.Fatalf("%q has a byte that is not printable", text)
			}
		}
		// Outside quotes, each key occurs once.
		var outside strings.Builder
		quoted := false
		for i := 0; i < len(text); i++ {
			switch {
			case text[i] == '"':
				quoted = !quoted
			case quoted && text[i] == '\\':
				i++
			case !quoted:
				outside.WriteByte(text[i])
			}
		}
		if quoted || strings.Count(outside.String(), "=") != 11 {
			t.Fatalf("%q", text)
		}
		var got map[string]any
		line := logged(t, LogJSON, e)
		if err := json.Unmarshal([]byte(line), &got); err != nil || len(got) != 11 || strings.Count(line, "\n") != 1 {
			t.Fatalf("%q: %v", line, err)
		}
	})
}

func TestSecretsInAPathAreRedacted(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/wp/wpt_abc_secretsecret/x": "/v1/wp/wpt_REDACTED/x",
		"/a/xwpt_abc_secret":            "/a/xwpt_REDACTED",
		"/a/eyJhbGciOi.eyJzdWIi.c2ln/b": "/a/JWT_REDACTED/b",
		"/a/token=eyJhbG.eyJz.c2ln":     "/a/token=JWT_REDACTED",
		"/a/eyJhbGciOi":                 "/a/eyJhbGciOi",
		"/a/b":                          "/a/b",
	} {
		t.Run(path, func(t *testing.T) {
			if got := redacted(path); got != want {
				t.Errorf("redacted(%q) = %q, want %q", path, got, want)
			}
		})
	}
}

// A stuckWriter blocks until it is released.
type stuckWriter struct {
	writing, release chan struct{}
	out              bytes.Buffer
	err              error
}

func (w *stuckWriter) Write(p []byte) (int, error) {
	select {
	case w.writing <- struct{}{}:
	default:
	}
	<-w.release
	w.out.Write(p)
	return len(p), w.err
}

func TestASlowDiskDelaysNoRequestAndLossesAreLogged(t *testing.T) {
	for _, format := range []LogFormat{LogText, LogJSON} {
		w := &stuckWriter{writing: make(chan struct{}, 1), release: make(chan struct{})}
		l := NewAccessLog(w, format, nil)
		l.add(&sampleEntry, AllLogFields)
		<-w.writing // the goroutine is blocked now
		const more = 20000
		for range more {
			l.add(&sampleEntry, AllLogFields) // blocks if requests wait for the disk
		}
		close(w.release)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(w.out.String()), "\n")
		last := lines[len(lines)-1]
		if !strings.Contains(last, "access log lines dropped") || len(lines) > more/2 {
			t.Fatalf("%d lines, the last: %s", len(lines), last)
		}
		kept := len(lines) - 1
		dropped := strings.TrimRight(last[strings.LastIndexAny(last, "=:")+1:], "}")
		if dropped != itoa(more+1-kept) {
			t.Errorf("%d lines of %d are there, and %s are reported as dropped", kept, more+1, dropped)
		}
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func TestAWriteErrorIsLoggedOnce(t *testing.T) {
	w := &stuckWriter{writing: make(chan struct{}, 1), release: make(chan struct{}), err: errors.New("no space left")}
	close(w.release)
	log := new(logtest.Buffer)
	l := NewAccessLog(w, LogText, slog.New(slog.NewTextHandler(log, nil)))
	for range 3 {
		l.add(&sampleEntry, AllLogFields)
		<-w.writing
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "no space left"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log)
	}
}

func TestALineHasItsAgentInBothFormats(t *testing.T) {
	e := sampleEntry
	e.agent = KeyedHash{0x0123456789abcdef, true}
	for format, want := range map[LogFormat]string{
		LogText: " limiter=widget-leads agent=0123456789ABCDEF outcome=admitted ",
		LogJSON: `,"limiter":"widget-leads","agent":"0123456789ABCDEF","outcome":"admitted",`,
	} {
		if got := logged(t, format, e); !strings.Contains(got, want) {
			t.Errorf("%s, want %s in it", got, want)
		}
	}
}

// An agent in the log costs its hash, 23 bytes of a line, and no allocation.
func TestAnAgentInTheLogAllocatesNothing(t *testing.T) {
	l := NewAccessLog(discard{}, LogText, nil)
	defer l.Close()
	e := sampleEntry
	e.agent = KeyedHash{0x0123456789abcdef, true}
	l.add(&e, AllLogFields)
	if n := testing.AllocsPerRun(1000, func() { l.add(&e, AllLogFields) }); n > 0 {
		t.Errorf("%v allocations a line", n)
	}
}
func BenchmarkAccessLog(b *testing.B) {
	l := NewAccessLog(discard{}, LogText, nil)
	defer l.Close()
	b.ReportAllocs()
	for b.Loop() {
		e := sampleEntry
		e.start = time.Now()
		l.add(&e, AllLogFields)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func TestALineHasWhatARequestHasCost(t *testing.T) {
	for _, test := range []struct {
		cost       Cost
		text, json string
	}{
		{Cost{400, 120}, " limiter=widget-leads reserved=400 cost=120 outcome=admitted ", `"limiter":"widget-leads","reserved":400,"cost":120,"outcome":"admitted",`},
		{Cost{400, 0}, " reserved=400 cost=0 outcome=", `"reserved":400,"cost":0,"outcome":`},
		{Cost{400, -1}, " reserved=400 outcome=", `"reserved":400,"outcome":`},
		{Cost{400, 450}, " reserved=400 cost=450 overrun=50 outcome=", `"reserved":400,"cost":450,"overrun":50,"outcome":`},
	} {
		e := sampleEntry
		e.cost = test.cost
		if got := logged(t, LogText, e); !strings.Contains(got, test.text) {
			t.Errorf("%+v is %q, want %q in it", test.cost, got, test.text)
		}
		if got := logged(t, LogJSON, e); !strings.Contains(got, test.json) || !json.Valid([]byte(got)) {
			t.Errorf("%+v is %q, want %q in it", test.cost, got, test.json)
		}
	}
}
