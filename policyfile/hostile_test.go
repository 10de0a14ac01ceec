//go:build !race

// One goroutine reads each text, which the race detector would only slow down.

package policyfile_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/policyfile"
)

// hostile lists texts on which YAML parsers spend quadratic time or memory. Each is repeated up to
// the size under test.
var hostile = []string{
	"[", "]", "{", "}", "[]", "[a,", "{a: ", "{a,", "{{}: ", "[{", "- ", "- - ", "? ", "? ?\n", "a: ", "a:\n", ":", ": ", ",", "-", "\\",
	"\"\t", "'", "\"", "\"a\" : ", "\"a\",", "a\n", " ", "\t", "\n", "\r", "\r\n", "#\n", "# a", "# \"|\n", "#\"\n", "-\n",
	"a: |\n  b\n", "|\n", "| ", "|1\n", ">\n\n", "a: >\n ", "- |\n\n", "...|\n", "@|\n\n",
	"&a ", "*a ", "!a ", "!!str a: ", "!!map ", "&a\n", "a: &a\n- ", "<<: ", "---\n", "...\n", "%a ", "%a\n",
	"a: b\n", "- a\n", "- a: b\n", "- {}\n", "- name: a\n", "- [/a]\n", " a\n  b\n", "a: a a\n  a\n", "a: [\n", "a: '", "a: \"\n", "a: - ",
	"@", "`", "\xff", "\u00e9", "\u202e", "\x00", "null\n", "~,", "1,", "1.5e1,", "0x", "- /*\n", "x: [/a, /b]\n",
}

// openings are put before the repeated text, since they can change its meaning.
var openings = []string{"", "\"", "'", "a: ", "[", "limiters: [", "limiters:\n- ", "limiters: [{routes: [", "limiters:\n- name: a\n  windows: [", "a: |\n "}

// A quadratic case of 192 KiB takes minutes or many GiB. A linear one takes a fraction of a second,
// and less memory than this.
const (
	hostileSize   = 192 << 10
	insideSize    = 16 << 10
	hostileMemory = 300 << 20
	hostileTime   = 2 * time.Minute
)

func TestHostileFilesCostNoMoreThanTheirSize(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	for _, opening := range openings {
		size := insideSize
		if opening == "" {
			size = hostileSize
		}
		for _, piece := range hostile {
			source := []byte(opening + strings.Repeat(piece, (size-len(opening))/len(piece)))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			started := time.Now()
			f, err := policyfile.Parse("hostile.yaml", source)
			spent := time.Since(started)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Errorf("%q and %q repeated: accepted as %d limiters", opening, piece, len(f.Policy.Limiters))
			}
			if memory := after.TotalAlloc - before.TotalAlloc; memory > hostileMemory || spent > hostileTime {
				t.Errorf("%q and %q repeated: took %v and %d MiB", opening, piece, spent, memory>>20)
			}
		}
	}
}

// costly returns well-formed documents that would be expensive if every item was compared with
// every other.
func costly() map[string]string {
	var methods, fields, paths, same strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&methods, "%s /a,", letters(i))
		fmt.Fprintf(&same, "/a,")
	}
	for range 500 {
		fields.WriteString("- {")
		for j := range 90 {
			fmt.Fprintf(&fields, "f%d: 1,", j)
		}
		fields.WriteString("}\n")
	}
	for i := range policyfile.MaxRoutes {
		fmt.Fprintf(&paths, "POST /a/%d/b,", i)
	}
	var plans strings.Builder
	for i := range 100 {
		fmt.Fprintf(&plans, "- {name: a%d, windows: [1 per day by ip], plans: {by: token", i)
		for j := range 190 {
			fmt.Fprintf(&plans, ",p%d: 1 per day", j)
		}
		plans.WriteString("}}\n")
	}
	limiter := func(routes, windows string) string {
		return "limiters: [{name: a, routes: [" + routes + "], windows: [" + windows + "]}]"
	}
	return map[string]string{
		"windows to compare":          limiter("/*", strings.Repeat("1 per day by ip,", 40_000)),
		"bad windows":                 limiter("/*", strings.Repeat("1/d,", 40_000)),
		"routes of one path":          limiter(methods.String(), "1 per day by ip"),
		"as many as may be":           limiter(methods.String()[:strings.Index(methods.String(), letters(policyfile.MaxRoutes)+" /a")], "1 per day by ip"),
		"routes that are all alike":   limiter(same.String(), "1 per day by ip"),
		"alike, as many as may be":    limiter(strings.Repeat("/a,", policyfile.MaxRoutes), "1 per day by ip"),
		"holes under many prefixes":   limiter(paths.String(), "1 per day by ip"),
		"plans of many limiters":      "limiters:\n" + plans.String(),
		"rates of one plan":           "limiters: [{name: a, windows: [1 per day by ip], plans: {by: token, p: [" + strings.Repeat("1 per day,", 40_000) + "]}}]",
		"unknown fields":              "limiters:\n" + fields.String(),
		"limiters without anything":   "limiters: [" + strings.Repeat("{},", policyfile.MaxLimiters) + "]",
		"limiters, many times beyond": "limiters: [" + strings.Repeat("{},", 30_000) + "]",
	}
}

// letters returns the i-th word of capital letters.
func letters(i int) string {
	word := ""
	for range 4 {
		word += string(rune('A' + i%26))
		i /= 26
	}
	return word
}

func TestCostlyDocumentsTakeNoLongerThanOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	for name, source := range costly() {
		started := time.Now()
		f, err := policyfile.Parse("costly.yaml", []byte(source))
		if spent := time.Since(started); spent > hostileTime {
			t.Errorf("%s: took %v", name, spent)
		}
		if valid := name == "as many as may be" || name == "holes under many prefixes" || name == "plans of many limiters"; valid != (err == nil) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
}

func TestHostileConfigurationsCostNoMoreThanTheirSize(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	var names strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&names, "n%d: 1\n", i)
	}
	sources := []string{names.String(), "map: {" + strings.ReplaceAll(names.String(), "\n", ",") + "}"}
	for _, opening := range []string{"", "a: ", "a: [", "map: {a: ["} {
		for _, piece := range hostile {
			sources = append(sources, opening+strings.Repeat(piece, insideSize/len(piece)))
		}
	}
	for _, source := range sources {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		started := time.Now()
		taken := 0
		_ = policyfile.ParseSettings("hostile.yaml", []byte(source), func(*policyfile.Setting) { taken++ }, "map")
		runtime.ReadMemStats(&after)
		if memory, spent := after.TotalAlloc-before.TotalAlloc, time.Since(started); memory > hostileMemory || spent > hostileTime {
			t.Errorf("%.40q…: took %v and %d MiB", source, spent, memory>>20)
		}
		if taken > len(source) {
			t.Errorf("%.40q…: %d settings", source, taken)
		}
	}
}
