//go:build !race

// One goroutine reads, which the race detector would only slow down.

package accesslog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/internal/accesslog"
)

func TestLinesOfManyFilesComeInTheOrderOfTimeEachOnce(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		const slack = 5 // seconds by which a line may be late
		files := make([]strings.Builder, rapid.IntRange(1, 6).Draw(t, "files"))
		n := rapid.IntRange(len(files), 120).Draw(t, "lines")
		clocks := make([]int, len(files)) // the latest second written to each
		for i := range files {
			clocks[i] = rapid.IntRange(0, 60).Draw(t, "start")
		}
		for i := range n {
			f := i % len(files)
			if i >= len(files) {
				f = rapid.IntRange(0, len(files)-1).Draw(t, "file")
			}
			second := clocks[f] + rapid.IntRange(-slack, 3).Draw(t, "later")
			clocks[f] = max(clocks[f], second)
			files[f].WriteString(commonLine(noon.Add(time.Duration(second)*time.Second), fmt.Sprintf("%d-%d", f, i)))
		}
		o := accesslog.Options{Reorder: slack * time.Second}
		for i := range files {
			text := packed([]byte(files[i].String()), rapid.IntRange(0, 4).Draw(t, "packed"))
			o.Files = append(o.Files, write(t, filepath.Join(dir, fmt.Sprint(i)), text))
		}
		found, times, stats := targets(t, o)
		if !slices.IsSorted(times) {
			t.Fatalf("times are out of order: %v", times)
		}
		if stats.OutOfOrder != 0 || stats.Lines != int64(n) || stats.Malformed != 0 || stats.Bytes != stats.Total {
			t.Fatalf("stats are %+v of %d lines", stats, n)
		}
		slices.Sort(found)
		if len(slices.Compact(found)) != n {
			t.Fatalf("%d different lines of %d", len(slices.Compact(found)), n)
		}
		again, _, _ := targets(t, o)
		if slices.Sort(again); !slices.Equal(again, found) {
			t.Fatal("a second reading gives another result")
		}
	})
}

func TestALineTakesNoMemoryOfItsOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	for name, log := range map[string]func(lines, perSecond int) []byte{"combined": combinedLog, "nginx-json": nginxLog, "caddy": caddyLog} {
		few, many := log(10_000, 50), log(60_000, 50)
		objects := func(text []byte) float64 {
			return testing.AllocsPerRun(1, func() { readAll(t, accesslog.Options{Format: name, Stdin: bytes.NewReader(text)}) })
		}
		if more := objects(many) - objects(few); more > 1000 {
			t.Errorf("%s: %v objects are taken for 50000 lines more", name, more)
		}
	}
}

func TestALineOfAnyLengthIsPassedInConstantMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	quotes := strings.Repeat(`"`, 1<<20)
	for _, pack := range []func([]byte) []byte{zipped, zstded} {
		text := commonLine(noon, "a") + strings.Repeat(quotes, 100) + "\n" + commonLine(noon, "b")
		file := bytes.NewReader(pack([]byte(text)))
		var malformed []string
		o := accesslog.Options{Stdin: file, Malformed: func(m accesslog.Malformed) {
			malformed = append(malformed, fmt.Sprint(m.Line, " ", len(m.Text), " ", m.Reason))
		}}
		var found []string
		if bytes := allocated(func() { found, _, _ = targets(t, o) }); bytes > 32<<20 {
			t.Errorf("%d bytes of memory are taken to pass %d", bytes, len(text))
		}
		if !slices.Equal(found, []string{"/a", "/b"}) || !slices.Equal(malformed, []string{"2 200 longer than 1 MiB"}) {
			t.Errorf("it holds %v, malformed %v", found, malformed)
		}
	}
}

func TestLongLinesOfQuotesAndBackslashesTakeNoLonger(t *testing.T) {
	// A hundred lines of 1 MB. A parser that looks back at every quote would examine each a million
	// times.
	for _, tail := range []string{`"`, `\`, `\"`, `" "`, `["] "`} {
		line := strings.TrimSuffix(commonLine(noon, "a"), "\" 200 1\n") + strings.Repeat(tail, 1_000_000/len(tail)) + "\n"
		_, _, stats := targets(t, accesslog.Options{Format: "combined", Stdin: io.MultiReader(
			bytes.NewReader(combinedLog(1, 1)), &endless{line: func(int) string { return line }, lines: 100})})
		if stats.Malformed != 100 {
			t.Errorf("%d lines of %s are malformed", stats.Malformed, tail)
		}
	}
}

func TestLinesOfTheFutureWaitWithoutHoldingTheRest(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	// One line in a thousand is of the next hour. Each of these waits to the end and must not keep
	// more than itself in memory. If they kept whole blocks, the buffer would be full and they
	// would be returned too early.
	const lines, every = 400_000, 1000
	pad := strings.Repeat("x", 200)
	o := accesslog.Options{Stdin: &endless{lines: lines, line: func(n int) string {
		at := noon.Add(time.Duration(n/1000) * time.Second)
		if n%every == every-1 {
			at = noon.Add(50 * time.Minute)
		}
		return commonLine(at, pad)
	}}}
	r, err := accesslog.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	var l accesslog.Line
	n := 0
	for err = r.Next(&l); err == nil; err = r.Next(&l) {
		if n++; len(l.Target) != 201 || strings.Trim(string(l.Target), "x") != "/" {
			t.Fatalf("line %d has target %q", n, l.Target)
		}
	}
	if s := r.Stats(); n != lines || s.OutOfOrder != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d lines, %d of them out of order, then %v", n, s.OutOfOrder, err)
	}
}

func TestNoMoreLinesWaitThanThereIsRoomFor(t *testing.T) {
	const lines = 600_000 // of one second
	o := accesslog.Options{Stdin: &endless{lines: lines, line: func(int) string { return commonLine(noon, "a") }}, Reorder: time.Hour}
	bytes := allocated(func() {
		r, err := accesslog.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		var l accesslog.Line
		for err = r.Next(&l); err == nil; err = r.Next(&l) {
			continue
		}
		if got := r.Stats().Lines; got != lines {
			t.Errorf("%d lines", got)
		}
	})
	if bytes > 256<<20 {
		t.Errorf("%d bytes of memory were taken", bytes)
	}
}
