package accesslog_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/accesslog"
)

const day = 24 * time.Hour

// A run is a number of lines, one second apart.
type run struct {
	at    time.Duration // after noon
	lines int
	name  string
}

func (r run) String() string {
	var b strings.Builder
	for i := range r.lines {
		b.WriteString(commonLine(noon.Add(r.at+time.Duration(i)*time.Second), r.name))
	}
	return b.String()
}

func logOf(runs ...run) string {
	var b strings.Builder
	for _, r := range runs {
		b.WriteString(r.String())
	}
	return b.String()
}

func TestATimeFarAheadOfTheLinesAroundItIsMalformed(t *testing.T) {
	alternating := strings.Builder{}
	for i := range 200 {
		alternating.WriteString(logOf(run{365*day + time.Duration(i)*time.Second, 1, "bad"}, run{time.Duration(i) * time.Second, 1, "good"}))
	}
	for name, c := range map[string]struct {
		text      string
		good, bad int
	}{
		"one":                       {logOf(run{0, 100, "good"}, run{3286 * day, 1, "bad"}, run{100 * time.Second, 100, "good"}), 200, 1},
		"two":                       {logOf(run{0, 100, "good"}, run{3286 * day, 2, "bad"}, run{100 * time.Second, 100, "good"}), 200, 2},
		"sixteen":                   {logOf(run{0, 100, "good"}, run{2 * time.Hour, 16, "bad"}, run{100 * time.Second, 100, "good"}), 200, 16},
		"at first":                  {logOf(run{day, 1, "bad"}, run{0, 100, "good"}), 100, 1},
		"before few others":         {logOf(run{0, 5, "good"}, run{day, 2, "bad"}, run{5 * time.Second, 3, "good"}), 8, 2},
		"of a server of two":        {alternating.String(), 200, 200},
		"and a time of rest":        {logOf(run{0, 50, "good"}, run{900 * day, 3, "bad"}, run{day, 50, "good"}), 100, 3},
		"a time of rest":            {logOf(run{0, 50, "good"}, run{2 * day, 50, "good"}), 100, 0},
		"a rest, and one long call": {logOf(run{0, 50, "good"}, run{day, 3, "good"}, run{50 * time.Second, 1, "good"}, run{day, 50, "good"}), 104, 0},
		"the last lines":            {logOf(run{0, 50, "good"}, run{day, 3, "good"}), 53, 0},
		"a line a day":              {logOf(run{0, 1, "good"}, run{day, 1, "good"}, run{2 * day, 1, "good"}, run{3 * day, 1, "good"}), 4, 0},
		"within the hour":           {logOf(run{0, 50, "good"}, run{59 * time.Minute, 1, "good"}, run{50 * time.Second, 50, "good"}), 101, 0},
		"one line":                  {logOf(run{0, 1, "good"}), 1, 0},
		"a step back":               {logOf(run{0, 100, "good"}, run{-day, 100, "good"}), 200, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, reorder := range []time.Duration{0, -1} {
				malformed := 0
				found, _, stats := targets(t, accesslog.Options{Stdin: strings.NewReader(c.text), Reorder: reorder, Malformed: func(m accesslog.Malformed) {
					if malformed++; !strings.Contains(string(m.Text), "GET /bad") || !strings.HasPrefix(m.Reason, "its time is ") {
						t.Errorf("%s, %v: line %d is malformed: %s", name, reorder, m.Line, m.Reason)
					}
				}})
				if len(found) != c.good || slices.Contains(found, "/bad") || malformed != c.bad || stats.Malformed != int64(c.bad) || stats.Lines != int64(c.good+c.bad) {
					t.Errorf("%s, %v: %d lines, %d malformed, %+v; want %d and %d", name, reorder, len(found), malformed, stats, c.good, c.bad)
				}
				if c.bad > 0 && stats.OutOfOrder > 0 {
					t.Errorf("%s, %v: %d lines are out of order by %v", name, reorder, stats.OutOfOrder, stats.Disorder)
				}
			}
		})
	}
}

func TestALineThatIsDisbelievedIsShownAsItStands(t *testing.T) {
	line := `192.0.2.1 - - [` + noon.Add(3286*day).Format("02/Jan/2006:15:04:05 -0700") + `] "GET /\x22` + strings.Repeat(`\x41`, 100) + ` HTTP/1.1" 200 1`
	var told []string
	targets(t, accesslog.Options{Stdin: strings.NewReader(run{0, 40, "a"}.String() + line + "\n" + run{40 * time.Second, 40, "b"}.String()),
		Malformed: func(m accesslog.Malformed) {
			told = append(told, fmt.Sprint(m.Line, " ", string(m.Text), " ", m.Reason))
		}})
	if want := "41 " + line[:200] + " its time is 3285 days after those of the lines around it"; len(told) != 1 || told[0] != want {
		t.Errorf("reported %q, want %q", told, want)
	}
}

func TestDoubtedLinesBetweenLongOnesHoldNoMoreThanThemselves(t *testing.T) {
	// Every line is of another day, so each waits for others. Malformed lines between them fill
	// blocks of text.
	junk := strings.Repeat("x", 100<<10) + "\n"
	const lines = 500
	o := accesslog.Options{Stdin: &endless{lines: 4 * lines, line: func(n int) string {
		if n%4 > 0 {
			return junk
		}
		return commonLine(noon.Add(time.Duration(n/4)*day), fmt.Sprint(n/4))
	}}}
	var found []string
	if bytes := allocated(func() { found, _, _ = targets(t, o) }); bytes > 8<<20 {
		t.Errorf("%d bytes of memory are taken", bytes)
	}
	if len(found) != lines || found[lines-1] != fmt.Sprintf("/%d", lines-1) {
		t.Errorf("%d lines", len(found))
	}
}

func TestTwoReadingsDisbelieveTheSame(t *testing.T) {
	var text bytes.Buffer
	for i := range 3000 {
		at := noon.Add(time.Duration(i) * time.Second)
		if i*i%101 < 20 {
			at = at.Add(time.Duration(i*i%7) * 40 * time.Minute)
		}
		text.WriteString(commonLine(at, fmt.Sprint(i)))
	}
	var seen [][]string
	for how := range 5 {
		found, _, _ := targets(t, accesslog.Options{Stdin: bytes.NewReader(packed(text.Bytes(), how))})
		seen = append(seen, found)
	}
	for how, found := range seen {
		if len(found) == 3000 || !slices.Equal(found, seen[0]) {
			t.Errorf("%d: %d lines of 3000 are read, and %d at first", how, len(found), len(seen[0]))
		}
	}
}
