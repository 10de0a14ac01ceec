package envoyratelimit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

// Under their windows and their counting, every drawn configuration gives the same answers. What is
// drawn leaves out what docs/envoy.md lists as a difference.
func TestDrawnRequestsAreAnsweredAsTheirsAre(t *testing.T) {
	p := newPlace(t)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		for p.unitsCollide() {
			p.clock.Advance(time.Hour)
		}
		n++
		domain := fmt.Sprintf("d%d", n)
		text := "domain: " + domain + "\n" + drawDescriptors(t, "", 0)
		them, theirProblem := p.theirs(text)
		us, ourProblem := p.weirs(text, ours{weir.AlignClock, true})
		if (theirProblem == nil) != (ourProblem == nil) {
			t.Fatalf("they say %v, we say %v about\n%s", theirProblem, ourProblem, text)
		}
		if theirProblem != nil {
			return
		}
		for range rapid.IntRange(3, 12).Draw(t, "requests") {
			asked := drawRequest(t)
			r := requestOf(rapid.SampledFrom([]string{domain, domain, domain, domain, domain, "elsewhere", ""}).Draw(t, "domain"), asked)
			if asked == "none" {
				r.Descriptors = nil
			}
			theirs, ours := answer(them, r), strings.Replace(answer(us, r), "rpc error: code = Unknown desc = ", "", 1)
			if strings.Contains(text, "shadow_mode") { // they write its fields, we never do
				theirs, _, _ = strings.Cut(theirs, " Limit=")
				ours, _, _ = strings.Cut(ours, " Limit=")
			}
			if theirs != ours {
				t.Fatalf("%s: they answer\n%s, we answer\n%s, by\n%s", asked, theirs, ours, text)
			}
			p.clock.Advance(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 40}).Draw(t, "seconds")) * time.Second)
		}
	})
}

// unitsCollide reports whether windows of two units begin in one second, or may do so soon: their
// keys have the second and not the unit, so both units share a count, which is a row of the table.
func (p *place) unitsCollide() bool {
	now := p.clock.Now().UTC()
	day := now.Unix() / 86400
	return now.Hour() < 1 || now.Hour() > 21 || day%7 == 0 || day%30 == 0
}

func drawDescriptors(t *rapid.T, indent string, depth int) string {
	var b strings.Builder
	b.WriteString(indent + "descriptors:\n")
	for range rapid.IntRange(1, 4).Draw(t, "descriptors") {
		value := rapid.SampledFrom([]string{"", "", "x", "y", "x*", "*"}).Draw(t, "value")
		fmt.Fprintf(&b, "%s  - key: %s\n", indent, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"))
		if value != "" {
			fmt.Fprintf(&b, "%s    value: %q\n", indent, value)
		}
		if strings.HasSuffix(value, "*") && rapid.Bool().Draw(t, "share") {
			fmt.Fprintf(&b, "%s    share_threshold: true\n", indent)
		}
		switch rapid.IntRange(0, 9).Draw(t, "limit") {
		case 0, 1:
		case 2:
			fmt.Fprintf(&b, "%s    rate_limit: {unlimited: true}\n", indent)
		default:
			named := rapid.SampledFrom([]string{"", "", ", name: one", ", name: two, replaces: [{name: one}]"}).Draw(t, "name")
			fmt.Fprintf(&b, "%s    rate_limit: {unit: %s, requests_per_unit: %d%s}\n", indent,
				rapid.SampledFrom([]string{"hour", "Day", "WEEK", "month"}).Draw(t, "unit"), rapid.IntRange(0, 5).Draw(t, "requests"), named)
			if rapid.IntRange(0, 4).Draw(t, "shadow") == 0 {
				fmt.Fprintf(&b, "%s    shadow_mode: true\n", indent)
			}
		}
		if depth < 2 && rapid.IntRange(0, 2).Draw(t, "nested") == 0 {
			b.WriteString(drawDescriptors(t, indent+"    ", depth+1))
		}
	}
	return b.String()
}

func drawRequest(t *rapid.T) string {
	if rapid.IntRange(0, 30).Draw(t, "empty") == 0 {
		return "none"
	}
	var all []string
	for range rapid.IntRange(1, 4).Draw(t, "asks") {
		var words []string
		for range rapid.IntRange(1, 3).Draw(t, "entries") {
			words = append(words, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")+rapid.SampledFrom([]string{"", "=x", "=y", "=xy", "=z"}).Draw(t, "value"))
		}
		switch rapid.IntRange(0, 6).Draw(t, "special") {
		case 0:
			words = append(words, fmt.Sprintf("+%d", rapid.IntRange(0, 3).Draw(t, "hits")))
		case 1:
			words = append(words, fmt.Sprintf("=%d-%s", rapid.IntRange(0, 4).Draw(t, "override"), rapid.SampledFrom([]string{"HOUR", "DAY"}).Draw(t, "unit")))
		}
		all = append(all, strings.Join(words, " "))
	}
	if rapid.IntRange(0, 3).Draw(t, "addend") == 0 {
		all[0] += fmt.Sprintf(" *%d", rapid.IntRange(0, 3).Draw(t, "own"))
	}
	return strings.Join(all, "|")
}
