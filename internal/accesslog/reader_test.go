package accesslog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/weirlimit/weir/internal/accesslog"
)

// commonLine returns a line in the common format with a recognizable target.
func commonLine(at time.Time, target string) string {
	return fmt.Sprintf("192.0.2.1 - - [%s] \"GET /%s HTTP/1.1\" 200 1\n", at.Format("02/Jan/2006:15:04:05 -0700"), target)
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func write(t interface{ Fatal(...any) }, name string, text []byte) string {
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// targets reads all lines and returns their targets and times.
func targets(tb interface{ Fatal(...any) }, o accesslog.Options) (found []string, times []int64, stats accesslog.Stats) {
	r, err := accesslog.Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	var l accesslog.Line
	for {
		err := r.Next(&l)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			tb.Fatal(err)
		}
		found = append(found, string(l.Target))
		times = append(times, l.Time)
	}
	stats = r.Stats()
	if err := r.Close(); err != nil {
		tb.Fatal(err)
	}
	return found, times, stats
}

// packed returns a text plain or in one of the compressed forms of logs.
func packed(text []byte, how int) []byte {
	half := bytes.LastIndexByte(text[:len(text)/2], '\n') + 1
	switch how {
	case 1:
		return zipped(text)
	case 2: // two members
		return append(zipped(text[:half]), zipped(text[half:])...)
	case 3:
		return zstded(text)
	case 4: // two frames, with a skippable frame before each
		skip := "\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
		return slices.Concat([]byte(skip), zstded(text[:half]), []byte(skip), zstded(text[half:]))
	}
	return text
}

func TestLinesOfOneTimeKeepTheOrderOfFilesAndLines(t *testing.T) {
	dir := t.TempDir()
	o := accesslog.Options{}
	for f := range 3 {
		text := ""
		for i := range 2 {
			text += commonLine(noon, fmt.Sprintf("%d%d", f, i))
		}
		o.Files = append(o.Files, write(t, filepath.Join(dir, fmt.Sprint(f)), []byte(text)))
	}
	if found, _, _ := targets(t, o); !slices.Equal(found, []string{"/00", "/01", "/10", "/11", "/20", "/21"}) {
		t.Errorf("they come as %v", found)
	}
}

func TestALineThatIsTooLateComesAtOnceAndIsCounted(t *testing.T) {
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	text := commonLine(at(0), "a") + commonLine(at(10), "b") + commonLine(at(12), "c") + commonLine(at(3), "late") + commonLine(at(20), "d")
	for _, test := range []struct {
		reorder    time.Duration
		want       string
		outOfOrder int64
		disorder   time.Duration
	}{
		{0, "/a /b /late /c /d", 1, 7 * time.Second},
		{10 * time.Second, "/a /late /b /c /d", 0, 0},
		{-1, "/a /b /c /late /d", 1, 9 * time.Second},
	} {
		found, _, stats := targets(t, accesslog.Options{Stdin: strings.NewReader(text), Reorder: test.reorder})
		if got := strings.Join(found, " "); got != test.want || stats.OutOfOrder != test.outOfOrder || stats.Disorder != test.disorder {
			t.Errorf("within %v: %s, %d out of order by at most %v; want %s, %d, %v", test.reorder,
				got, stats.OutOfOrder, stats.Disorder, test.want, test.outOfOrder, test.disorder)
		}
	}
}

func TestFilesThatCannotBeReadAreSaidToBeByName(t *testing.T) {
	dir := t.TempDir()
	good := write(t, filepath.Join(dir, "good.log"), []byte(commonLine(noon, "a")))
	if err := os.Link(good, filepath.Join(dir, "same.log")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "what.log"), []byte(strings.Repeat("\x1b[31mno log\n", 200)))
	write(t, filepath.Join(dir, "packed.xz"), []byte("\xfd7zXZ\x00\x00\x00"))
	write(t, filepath.Join(dir, "broken.gz"), []byte("\x1f\x8b\x07\x00\x00\x00\x00\x00\x00\x00"))
	for _, test := range []struct {
		format string
		fields []string
		files  []string
		want   []string
	}{
		{"", nil, []string{"good.log", "missing.log"}, []string{"missing.log"}},
		{"", nil, []string{"."}, []string{"directory"}},
		{"", nil, []string{"good.log", "good.log"}, []string{"good.log", "twice"}},
		{"", nil, []string{"good.log", "same.log"}, []string{"same.log", "the same file as", "good.log"}},
		{"", nil, []string{"what.log"}, []string{"what.log", `"\x1b[31mno log"`, "first 100 lines", "combined", "caddy"}},
		{"", nil, []string{"packed.xz"}, []string{"packed.xz", "xz", "gzip and zstd"}},
		{"", nil, []string{"broken.gz"}, []string{"broken.gz", "gzip"}},
		{"common", []string{"cookie_s"}, []string{"good.log"}, []string{`"cookie_s"`, "common"}},
		{"clf", nil, []string{"good.log"}, []string{`"clf"`, "vhost_combined"}},
		{"$remote_addr $status", nil, []string{"good.log"}, []string{"no time", "$time_local"}},
		{"$msec $status", nil, []string{"good.log"}, []string{"no request", "$request_uri"}},
		{"$msec$request", nil, []string{"good.log"}, []string{"the end of $msec and the beginning of $request"}},
		{"$msec '$'", nil, []string{"good.log"}, []string{"no variable"}},
	} {
		o := accesslog.Options{Format: test.format, Fields: test.fields}
		for _, name := range test.files {
			o.Files = append(o.Files, filepath.Join(dir, name))
		}
		_, err := accesslog.Open(o)
		if err == nil {
			t.Errorf("%v as %q is read", test.files, test.format)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v as %q: %q does not say %q", test.files, test.format, err, want)
			}
		}
		if strings.ContainsRune(err.Error(), 0x1b) {
			t.Errorf("%q holds what moves a cursor", err)
		}
	}
	if _, err := accesslog.Open(accesslog.Options{Files: []string{"-", "-"}, Stdin: strings.NewReader("")}); err == nil {
		t.Error("standard input is read twice")
	}
}

func TestLinesThatAreNotOfTheFormatGivenAreMalformedHoweverMany(t *testing.T) {
	const bad = 300 // more than are used to detect a format
	text := strings.Repeat("starting\n", bad) + commonLine(noon, "a") + commonLine(noon.Add(time.Second), "c")
	dir := t.TempDir()
	for name, o := range map[string]accesslog.Options{
		"a pipe":        {Stdin: strings.NewReader(text)},
		"a file":        {Files: []string{write(t, filepath.Join(dir, "a.log"), []byte(text))}},
		"several files": {Files: []string{write(t, filepath.Join(dir, "b.log"), []byte(commonLine(noon, "b"))), filepath.Join(dir, "a.log")}},
	} {
		o.Format = "common"
		found, times, stats := targets(t, o)
		if stats.Malformed != bad || stats.Lines != bad+int64(len(found)) || !slices.IsSorted(times) || !slices.Contains(found, "/a") || !slices.Contains(found, "/c") {
			t.Errorf("%s: it holds %v, %+v", name, found, stats)
		}
	}
	var first accesslog.Malformed
	found, _, stats := targets(t, accesslog.Options{Format: "combined", Stdin: strings.NewReader(commonLine(noon, "a")), Malformed: func(m accesslog.Malformed) { first = m }})
	if len(found) != 0 || stats.Malformed != 1 || stats.Formats[0] != "combined" || !strings.Contains(first.Reason, "no referrer") {
		t.Errorf("a file of another format holds %v, %+v: %s", found, stats, first.Reason)
	}
}

func TestFilesThatHoldNothingAreNoError(t *testing.T) {
	for _, text := range [][]byte{nil, []byte("\n\r\n\n"), zipped(nil), zstded(nil)} {
		if found, _, stats := targets(t, accesslog.Options{Stdin: bytes.NewReader(text)}); len(found) != 0 || stats.Lines != 0 {
			t.Errorf("%q holds %v, %+v", text, found, stats)
		}
	}
}

func TestWhatWasReadBeforeAFileBreaksOffIsGiven(t *testing.T) {
	var text bytes.Buffer
	for i := range 5000 {
		text.WriteString(commonLine(noon.Add(time.Duration(i)*time.Second), fmt.Sprint(i)))
	}
	dir := t.TempDir()
	whole := zipped(text.Bytes())
	broken := write(t, filepath.Join(dir, "broken.log.gz"), whole[:len(whole)/2])
	other := write(t, filepath.Join(dir, "other.log"), []byte(commonLine(noon.Add(2*time.Hour), "other")))
	r, err := accesslog.Open(accesslog.Options{Files: []string{broken, other}})
	if err != nil {
		t.Fatal(err)
	}
	var l accesslog.Line
	lines := 0
	for err = r.Next(&l); err == nil; err = r.Next(&l) {
		if want := fmt.Sprintf("/%d", lines); string(l.Target) != want {
			t.Fatalf("line %q, want %q", l.Target, want)
		}
		lines++
	}
	if lines < 100 || !strings.Contains(err.Error(), fmt.Sprintf("%s, line %d", broken, lines+1+int(r.Stats().Malformed))) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("after %d lines: %v", lines, err)
	}
	if err := r.Next(&l); err != nil || string(l.Target) != "/other" {
		t.Errorf("then %q, %v; want the other file", l.Target, err)
	}
	if err := r.Next(&l); !errors.Is(err, io.EOF) {
		t.Errorf("then %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// endless reads line(n) for all n below lines.
type endless struct {
	line  func(n int) string
	lines int
	next  int
	rest  string
}

func (e *endless) Read(b []byte) (n int, err error) {
	for n < len(b) {
		if e.rest == "" {
			if e.next == e.lines {
				return n, io.EOF
			}
			e.rest = e.line(e.next)
			e.next++
		}
		copied := copy(b[n:], e.rest)
		e.rest = e.rest[copied:]
		n += copied
	}
	return n, nil
}

func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestAFrameThatWantsTooMuchMemoryIsRefused(t *testing.T) {
	w, err := zstd.NewWriter(nil, zstd.WithWindowSize(256<<20), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w.Reset(&b)
	_, _ = w.Write(combinedLog(50_000, 100))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := accesslog.Open(accesslog.Options{Stdin: &b}); err == nil || !strings.Contains(err.Error(), "window size exceeded") {
		t.Errorf("it is read: %v", err)
	}
}
