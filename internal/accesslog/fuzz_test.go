package accesslog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/accesslog"
)

const fuzzedFormat = `$remote_addr - $remote_user [$time_local] "$request" $status $uri$is_args$args "$http_user_agent" $request_time`

// seeds returns one log of each format with its name.
func seeds(tb testing.TB) map[string][]byte {
	tb.Helper()
	all := map[string][]byte{fuzzedFormat: []byte(`192.0.2.1 - - [01/Mar/2026:12:00:00 +0000] "GET /a?b HTTP/1.1" 200 /a?b "x" 0.1` + "\n")}
	for _, name := range accesslog.Formats()[1:] {
		text, err := os.ReadFile(filepath.Join("testdata", name+".log"))
		if err != nil {
			tb.Fatal(err)
		}
		all[name] = text
	}
	return all
}

// FuzzRead checks for any bytes and every format that each line is returned or malformed, and that
// its values came from it.
func FuzzRead(f *testing.F) {
	all := seeds(f)
	for _, text := range all {
		f.Add(text)
		f.Add(zipped(text))
	}
	f.Add([]byte("\"\\\"[01/Mar/2026:12:00:00 +0000] \"\r\n\x00\n\n{\"a\\u0062\":[[{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for name, good := range all {
			first, _, _ := bytes.Cut(good, []byte("\n"))
			malformed, field := int64(0), "status"
			if name == "envoy" || name == "istio" {
				field = "response_code"
			}
			r, err := accesslog.Open(accesslog.Options{
				Format:    name,
				Fields:    []string{field},
				Stdin:     io.MultiReader(bytes.NewReader(first), strings.NewReader("\n"), bytes.NewReader(text)),
				Malformed: func(accesslog.Malformed) { malformed++ },
			})
			if err != nil {
				t.Fatal(err) // its first line is good
			}
			given := int64(0)
			var l accesslog.Line
			for err = r.Next(&l); err == nil; err = r.Next(&l) {
				given++
				if (l.Method == nil) != (l.Target == nil) || l.Status < 0 || l.Status > 999 || l.Number < 1 {
					t.Fatalf("%s: %+v", name, l)
				}
			}
			if errors.Is(err, accesslog.ErrNewestFirst) {
				err = io.EOF
			}
			if s := r.Stats(); !errors.Is(err, io.EOF) || s.Lines < given+malformed+s.Own || s.Malformed != malformed {
				t.Fatalf("%s: %d given, %d malformed, %+v, %v", name, given, malformed, s, err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := accesslog.Open(accesslog.Options{Stdin: bytes.NewReader(text)}); err == nil {
			_ = r.Close()
		}
	})
}

// nginxEscaped escapes a value as nginx does between quotes.
func nginxEscaped(value []byte) string {
	if len(value) == 0 {
		return "-"
	}
	var b strings.Builder
	for _, c := range value {
		if c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\x%02X`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func rendered(l *accesslog.Line) string {
	request, status := []byte("-"), "-"
	if l.Method != nil {
		request = []byte(fmt.Sprintf("%s %s HTTP/1.1", l.Method, l.Target))
	}
	if l.Status > 0 {
		status = fmt.Sprintf("%03d", l.Status)
	}
	return fmt.Sprintf("%s - - [%s] \"%s\" %s 0 \"-\" \"%s\"\n", l.Peer,
		time.Unix(0, l.Time).UTC().Format("02/Jan/2006:15:04:05 -0700"), nginxEscaped(request), status, nginxEscaped(l.UserAgent))
}

// FuzzCombined parses a line, writes its values as nginx would, and parses that.
func FuzzCombined(f *testing.F) {
	for _, name := range []string{"combined", "traefik"} {
		for line := range bytes.Lines(seeds(f)[name]) {
			f.Add(string(line))
		}
	}
	// no line can be far before it
	const first = `192.0.2.1 - - [01/Jan/1970:00:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-"` + "\n"
	second := func(t *testing.T, text string) (l accesslog.Line, ok bool) {
		r, err := accesslog.Open(accesslog.Options{Format: "combined", Reorder: -1, Stdin: io.MultiReader(strings.NewReader(first), strings.NewReader(text))})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err = r.Next(&l); err != nil {
				break
			}
		}
		return l, err == nil
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, ok := second(t, text)
		if !ok {
			return
		}
		again := rendered(&l)
		m, ok := second(t, again)
		if !ok || m.Time != l.Time || m.Status != l.Status || string(m.Peer) != string(l.Peer) || string(m.Method) != string(l.Method) ||
			string(m.Target) != string(l.Target) || string(m.UserAgent) != string(l.UserAgent) {
			t.Errorf("%q gives %q %q %q %q, and rewritten as %q %q %q %q %q", text, l.Peer, l.Method, l.Target, l.UserAgent,
				again, m.Peer, m.Method, m.Target, m.UserAgent)
		}
	})
}
