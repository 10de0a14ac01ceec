package accesslog_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/accesslog"
)

// ends returns the error that ends a log, and the number of lines before it.
func ends(t *testing.T, text string) (lines int, err error) {
	t.Helper()
	r, err := accesslog.Open(accesslog.Options{Stdin: strings.NewReader(text)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var l accesslog.Line
	for err = r.Next(&l); err == nil; err = r.Next(&l) {
		lines++
	}
	return lines, err
}

// stepped returns a log of the given number of lines, each later than the one before by step.
func stepped(from time.Time, step time.Duration, lines int) string {
	var b strings.Builder
	for i := range lines {
		b.WriteString(commonLine(from.Add(time.Duration(i)*step), fmt.Sprint(i)))
	}
	return b.String()
}

func TestALogThatIsNewestFirstIsNoticed(t *testing.T) {
	for name, text := range map[string]string{
		"a few lines":                          stepped(noon, -time.Minute, 3),
		"many lines":                           stepped(noon, -time.Second, 1000),
		"hours between them":                   stepped(noon, -5*time.Hour, 200),
		"many lines of one second":             reversed(strings.Repeat(commonLine(noon, ""), 500) + strings.Repeat(commonLine(noon.Add(time.Second), ""), 500) + stepped(noon.Add(2*time.Second), time.Second, 20)),
		"a slow request or two, written later": reversed(stepped(noon, time.Second, 500) + stepped(noon.Add(490*time.Second), time.Second, 500)),
	} {
		t.Run(name, func(t *testing.T) {
			lines, err := ends(t, text)
			if !errors.Is(err, accesslog.ErrNewestFirst) || lines > 600 {
				t.Errorf("%s: %d lines, and then: %v", name, lines, err)
			}
		})
	}
}

func reversed(text string) string {
	lines := slices.Collect(strings.Lines(text))
	slices.Reverse(lines)
	return strings.Join(lines, "")
}

func TestALogThatIsOutOfOrderIsNotTakenForNewestFirst(t *testing.T) {
	// like several processes that buffer their lines
	blocks := func(n int, each time.Duration) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(stepped(noon.Add(-time.Duration(i)*each), time.Second, 10))
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"the newer of two files first":   stepped(noon.Add(time.Hour), time.Second, 30) + stepped(noon, time.Second, 30),
		"one line that came late":        stepped(noon, 0, 2) + stepped(noon.Add(-time.Minute), 0, 2),
		"all within what is put right":   stepped(noon, -100*time.Millisecond, 10),
		"blocks that are newest first":   blocks(20, time.Minute),
		"a clock that was set back once": stepped(noon.Add(30*time.Minute), time.Second, 3) + stepped(noon, time.Second, 100),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ends(t, text); errors.Is(err, accesslog.ErrNewestFirst) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
