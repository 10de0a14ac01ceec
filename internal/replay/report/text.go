package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/weirlimit/weir/internal/plaintext"
	"github.com/weirlimit/weir/internal/replay"
)

// thousands formats a whole number in groups of three digits: 1,234,567.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// many formats a number of things, in singular or plural.
func many(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return thousands(n) + " " + thing + "s"
}

// are is many with the verb.
func are(n int64, thing string) string {
	if n == 1 {
		return many(n, thing) + " is"
	}
	return many(n, thing) + " are"
}

// counted formats a number of callers, and marks an estimate.
func counted(c replay.Count) string {
	if c.Estimated {
		return "~" + thousands(c.N)
	}
	return thousands(c.N)
}

// least formats a number, marked if it may be too low.
func least(n int64, doubt bool) string { return counted(replay.Count{N: n, Estimated: doubt}) }

// share formats n as a share of a whole. A share above 0 is never rounded to 0, nor one below 100 %
// to 100 %.
func share(n, of int64) string {
	switch {
	case of == 0:
		return "–"
	case n == 0:
		return "0 %"
	case n == of:
		return "100 %"
	}
	percent := 100 * float64(n) / float64(of)
	switch {
	case percent < 0.001:
		return "<0.001 %"
	case percent < 0.1:
		return fmt.Sprintf("%.3f %%", percent)
	case percent < 10:
		return fmt.Sprintf("%.2f %%", percent)
	case percent > 99.9 && percent < 100:
		return ">99.9 %"
	}
	return fmt.Sprintf("%.1f %%", percent)
}

// part is share for callers. If they are estimated, the result is at most 100 %.
func part(n, of replay.Count) string {
	if n.N == 0 || !n.Estimated && !of.Estimated { // that there are none is never an estimate
		return share(n.N, of.N)
	}
	return "~" + share(min(n.N, of.N), of.N)
}

// moment formats a time of the log in UTC.
func moment(at int64) string { return time.Unix(at, 0).UTC().Format(time.DateTime) }

// between formats a span of the log, with a common date only once.
func between(from, to int64) string {
	a, b := moment(from), moment(to)
	if a[:10] == b[:10] {
		return a + " to " + b[11:]
	}
	return a + " to " + b
}

// lasting formats a number of seconds: 0.4 s, 42 s, 3 min 5 s, 2 h 3 min, 4 d 1 h.
func lasting(seconds float64) string {
	s := int64(seconds + 0.5)
	switch {
	case seconds < 9.95:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", seconds), ".0") + " s"
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return trimZero(fmt.Sprintf("%d min %d s", s/60, s%60))
	case s < 86400:
		return trimZero(fmt.Sprintf("%d h %d min", s/3600, s%3600/60))
	}
	return trimZero(fmt.Sprintf("%d d %d h", s/86400, s%86400/3600))
}

// trimZero drops a second unit that is 0.
func trimZero(s string) string {
	words := strings.Split(s, " ")
	if len(words) == 4 && words[2] == "0" {
		return words[0] + " " + words[1]
	}
	return s
}

// Shown makes a text from a log or a file's name safe for a terminal (see plaintext.Line), and cuts
// it to a number of columns.
func Shown(s string, columns int) string {
	return runewidth.Truncate(plaintext.Line(s, math.MaxInt), columns, "…")
}

// bars are one eighth of a line high, two eighths, and so on.
var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws numbers over time in at most width characters: a space for 0, and a bar for
// everything else, however small.
func sparkline(values []int64, width int) string {
	values = merged(values, width)
	highest := int64(0)
	for _, v := range values {
		highest = max(highest, v)
	}
	line := make([]rune, len(values))
	for i, v := range values {
		if line[i] = ' '; v > 0 {
			line[i] = bars[int(math.Ceil(float64(v)/float64(highest)*float64(len(bars))))-1]
		}
	}
	return string(line)
}

// merged adds up neighbours until there are at most n values.
func merged(values []int64, n int) []int64 {
	each := (len(values) + n - 1) / max(n, 1)
	if each <= 1 {
		return values
	}
	out := make([]int64, 0, n)
	for i := 0; i < len(values); i += each {
		sum := int64(0)
		for _, v := range values[i:min(i+each, len(values))] {
			sum += v
		}
		out = append(out, sum)
	}
	return out
}
