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

// thousands writes a whole number in groups of three digits: 1,234,567.
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

// many says how many there are of a thing, in words that fit one and many.
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

// counted is a number of callers; one that is estimated says so.
func counted(c replay.Count) string {
	if c.Estimated {
		return "~" + thousands(c.N)
	}
	return thousands(c.N)
}

// least is a number that may be too low where it is in doubt.
func least(n int64, doubt bool) string { return counted(replay.Count{N: n, Estimated: doubt}) }

// share says which part of a whole n is. What is something is never rounded to nothing, nor what is not all to all.
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

// part is share of callers, who may be estimated: then they are no more than all.
func part(n, of replay.Count) string {
	if n.N == 0 || !n.Estimated && !of.Estimated { // that there is nobody is never an estimate
		return share(n.N, of.N)
	}
	return "~" + share(min(n.N, of.N), of.N)
}

// moment is a time of the log, UTC.
func moment(at int64) string { return time.Unix(at, 0).UTC().Format(time.DateTime) }

// between is a span of the log; what both ends share is said once.
func between(from, to int64) string {
	a, b := moment(from), moment(to)
	if a[:10] == b[:10] {
		return a + " to " + b[11:]
	}
	return a + " to " + b
}

// lasting is a number of seconds for people: 0.4 s, 42 s, 3 min 5 s, 2 h 3 min, 4 d 1 h.
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

// trimZero leaves out a second part that is nothing.
func trimZero(s string) string {
	words := strings.Split(s, " ")
	if len(words) == 4 && words[2] == "0" {
		return words[0] + " " + words[1]
	}
	return s
}

// Shown is what a log, or a file's name, says, fit for a terminal (see plaintext.Line) and at most so many columns wide.
func Shown(s string, most int) string {
	return runewidth.Truncate(plaintext.Line(s, math.MaxInt), most, "…")
}

// bars are an eighth of a line high, two eighths, and so on.
var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws numbers over time, width characters at most: a space where there is none, and a bar, however low, where there is one.
func sparkline(values []int64, width int) string {
	values = merged(values, width)
	most := int64(0)
	for _, v := range values {
		most = max(most, v)
	}
	line := make([]rune, len(values))
	for i, v := range values {
		if line[i] = ' '; v > 0 {
			line[i] = bars[int(math.Ceil(float64(v)/float64(most)*float64(len(bars))))-1]
		}
	}
	return string(line)
}

// merged adds neighbours up until there are at most so many values.
func merged(values []int64, most int) []int64 {
	each := (len(values) + most - 1) / max(most, 1)
	if each <= 1 {
		return values
	}
	out := make([]int64, 0, most)
	for i := 0; i < len(values); i += each {
		sum := int64(0)
		for _, v := range values[i:min(i+each, len(values))] {
			sum += v
		}
		out = append(out, sum)
	}
	return out
}
