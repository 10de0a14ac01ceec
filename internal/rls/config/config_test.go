package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func parse(t testing.TB, texts ...string) *Config {
	t.Helper()
	c, err := Parse(filesOf(texts...), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func filesOf(texts ...string) (all []File) {
	for i, text := range texts {
		all = append(all, File{Name: fmt.Sprintf("f%d.yaml", i+1), Text: []byte(text)})
	}
	return all
}

const tree = `domain: edge
descriptors:
  - key: method
    value: get
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: method
    value: p*t
    rate_limit: {unit: HOUR, requests_per_unit: 2}
  - key: method
    value: p*
    share_threshold: yes
    rate_limit: {unit: day, requests_per_unit: 3}
  - key: method
    rate_limit: {unit: second, requests_per_unit: 4}
    descriptors:
      - key: user
        value: 1.50
        shadow_mode: true
        quota_mode: on
        rate_limit: {requests_per_unit: 4_000_000_000, unit: week, name: n, replaces: [{name: other}]}
  - key: free
    rate_limit: {unlimited: true}
`

func TestAnEntryLeadsToTheExactValueThenToStarsInOrderThenToTheKeyAlone(t *testing.T) {
	root := parse(t, tree).Domain("edge")
	for value, want := range map[string]struct {
		found    Found
		requests uint32
	}{
		"get": {Exact, 1}, "put": {Wildcard, 2}, "pt": {Wildcard, 2}, "p": {Wildcard, 3}, "post": {Wildcard, 2}, "patch": {Wildcard, 3},
		"": {KeyAlone, 4}, "GET": {KeyAlone, 4},
	} {
		next, found := root.Step("method", value)
		if found != want.found || next.Rule.Requests != want.requests {
			t.Errorf("method=%s leads to %v with limit %d, want %v with %d", value, found, next.Rule.Requests, want.found, want.requests)
		}
	}
	if next, found := root.Step("method_get", ""); next != nil || found != None {
		t.Errorf("method_get leads to %v, want nowhere: a key is not joined to a value", next)
	}
}

func TestStarsMatchAnyTextAlsoNone(t *testing.T) {
	for _, c := range []struct {
		pattern, value string
		want           bool
	}{
		{"*", "", true}, {"*", "x", true}, {"a*", "a", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "axbxc", true}, {"a*b*c", "acb", false}, {"a**b", "ab", true},
		{"*ab*ab*", "abab", true}, {"*ab*ab*", "aba", false}, {"a*bc*c", "abcbc", true},
	} {
		w := newWildcard(c.pattern, nil)
		if w.matches(c.value) != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.pattern, c.value, !c.want, c.want)
		}
	}
}

func TestARuleHasWhatItsFileSays(t *testing.T) {
	root := parse(t, tree).Domain("edge")
	method, _ := root.Step("method", "")
	user, _ := method.Step("user", "1.50")
	r := user.Rule
	if got := fmt.Sprintln(r.Path, r.Requests, r.Unit, r.Name, r.Replaces, r.ShadowMode, r.QuotaMode, r.File, r.Line); got != "[edge method user_1.50] 4000000000 week n [other] true true f1.yaml 16\n" {
		t.Error(got)
	}
	shared, _ := root.Step("method", "p")
	if shared.Share != "p*" {
		t.Errorf("share is %q", shared.Share)
	}
	if free, _ := root.Step("free", "x"); !free.Rule.Unlimited {
		t.Error("free is limited")
	}
}

func TestAWrongFileIsRefusedWithItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "f1.yaml:1: the file is empty",
		"[1]":                                 "f1.yaml:1: the file is a list",
		"domain:":                             "f1.yaml:1: no domain",
		"domain: a\ndomain: b":                `f1.yaml:2: field "domain" occurs twice: line 1 has it already`,
		"domain: a\n---\ndomain: b":           "a second document",
		"domain: a\nx: [":                     "f1.yaml:2: not valid YAML",
		"domain: a\ndomains: b":               `f1.yaml:2: unknown field "domains" of the file`,
		"domain: a\ndescriptors: 5":           "f1.yaml:2: descriptors is a single value: it must be a list",
		"domain: a\ndescriptors:\n- value: 1": "f1.yaml:3: a descriptor without a key",
		"domain: a\ndescriptors:\n- key: a*":  "only a value can have a star",
		"domain: a\ndescriptors:\n- key: [a]": "key is a list: it must be a text",
		"domain: a\ndescriptors:\n- key: a\n- key: a":                                                            "f1.yaml:4: descriptor a occurs twice: f1.yaml:3 has it already",
		"domain: a\ndescriptors:\n- key: a\n  Value: b":                                                          `f1.yaml:4: unknown field "Value" of a descriptor`,
		"domain: a\ndescriptors:\n- key: a\n  rate_limit: {}":                                                    "f1.yaml:4: rate_limit without a unit",
		"domain: a\ndescriptors:\n- key: a\n  rate_limit: {unit: fortnight}":                                     `unit "fortnight" is unknown`,
		"domain: a\ndescriptors:\n- key: a\n  rate_limit: {unit: year}":                                          "the longest window is a month",
		"domain: a\ndescriptors:\n- key: a\n  rate_limit: {unit: day, unlimited: true}":                          "of an unlimited descriptor",
		"domain: a\ndescriptors:\n- key: a\n  rate_limit: {unit: day, requests_per_unit: -1}":                    `requests_per_unit is "-1"`,
		"domain: a\ndescriptors:\n- key: a\n  rate_limit: {unit: day, requests_per_unit: 1.5}":                   `requests_per_unit is "1.5"`,
		"domain: a\ndescriptors:\n- key: a\n  rate_limit: {unit: day, requests_per_unit: 4294967296}":            "requests_per_unit is",
		"domain: a\ndescriptors:\n- key: a\n  rate_limit: {unit: day, name: n, replaces: [{name: n}]}":           "replaces itself",
		"domain: a\ndescriptors:\n- key: a\n  rate_limit: {unit: day, name: n, replaces: [{}]}":                  "replaces without a name",
		"domain: a\ndescriptors:\n- key: a\n  shadow_mode: maybe":                                                `shadow_mode is "maybe"`,
		"domain: a\ndescriptors:\n- key: a\n  value: b\n  share_threshold: true":                                 "only for a value with a star",
		"domain: a\ndescriptors:\n- key: a\n  metadata:\n    x: .nan":                                            `f1.yaml:5: metadata has the number ".nan"`,
		"domain: a\ndescriptors:\n- key: a\n  metadata:\n    x: [1, {y: -.Inf}]":                                 `f1.yaml:5: metadata has the number "-.Inf"`,
		"domain: a\ndescriptors:\n- key: a\n  metadata:\n    x: &n .inf\n- key: b\n  metadata: {y: *n}":          `f1.yaml:5: metadata has the number ".inf"`,
		"domain: a\ndescriptors:\n- key: a\n  metadata: [1]":                                                     "metadata is a list",
		"domain: a\nx-common: &c {unit: day}\ndescriptors: []":                                                   `unknown field "x-common"`,
		"domain: a\ndescriptors:\n- &d\n  key: a\n- <<: *d\n  value: b":                                          "a merge (<<)",
		"domain: a\ndescriptors:\n- &d\n  key: a\n  descriptors:\n  - *d":                                        "",
		"domain: a\ndescriptors:\n" + strings.Repeat("- {key: a, descriptors: [", 70) + strings.Repeat("]}", 70): "",
		"domain: a\ndescriptors: " + strings.Repeat("[{key: a, descriptors: ", 70) + strings.Repeat("}]", 70):    "nested more than 64 deep",
	} {
		_, err := Parse(filesOf(text), Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant an error with %q", text, err, want)
		}
	}
}

// The line of a problem is the one that has to be changed, whichever part of the reading finds it.
func TestEveryKindOfProblemHasItsLine(t *testing.T) {
	const descriptor = "domain: a\ndescriptors:\n  - key: a\n"
	for _, c := range []struct{ kind, text, want string }{
		{"the parser: a shorter indent", descriptor + "    value: b\n   rate_limit: {}\n", "5: not valid YAML: did not find expected '-' indicator, while parsing a block collection that begins on line 3"},
		{"after comments and blank lines", "# x\n\n" + descriptor + "    # y\n\n   value: b\n", "8: not valid YAML: did not find expected '-' indicator"},
		{"a list in a mapping", "domain: a\n- b\n", "2: not valid YAML: did not find expected key"},
		{"a bracket too many", "domain: a\nx: [y]]\n", "2: not valid YAML: did not find expected key"},
		{"a bracket alone", "domain: a\nx: ]\n", "2: not valid YAML: did not find expected node content"},
		{"a bracket that is not closed", "domain: a\nx: [b\ny: c\n", "3: not valid YAML: did not find expected ',' or ']', while parsing a flow sequence that begins on line 2"},
		{"at the end of the file", "domain: a\nx: [\n", "2: not valid YAML: did not find expected node content"},
		{"at the end of the file, without a line break", "domain: a\nx: [", "2: not valid YAML: did not find expected node content"},
		{"of one line", "domain: [a", "1: not valid YAML: did not find expected ',' or ']'"},
		{"a brace that is not closed", descriptor + "    rate_limit: {unit: day\n  - key: b\n", "5: not valid YAML: did not find expected ',' or '}', while parsing a flow mapping that begins on line 4"},
		{"the scanner: a tab", descriptor + "    rate_limit:\n\tunit: day\n", "5: not valid YAML: found character that cannot start any token"},
		{"a longer indent", descriptor + "    rate_limit:\n      unit: day\n        name: b\n", "6: not valid YAML: mapping values are not allowed in this context"},
		{"two colons", "domain: a\nx: y: z\n", "2: not valid YAML: mapping values are not allowed in this context"},
		{"no colon", "domain: a\nx\n\ny: z\n", "2: not valid YAML: could not find expected ':'"},
		{"no colon on the last line", "domain: a\nx\n", "2: not valid YAML: could not find expected ':'"},
		{"a quote that is not closed", descriptor + "    value: 'b\n    shadow_mode: true\n", "4: not valid YAML: found unexpected end of stream"},
		{"a quote that ends with the document", "domain: a\nx: 'y\n\n---\n", "2: not valid YAML: found unexpected document indicator"},
		{"an escape in a text of two lines", descriptor + "    value: \"b\n      c\\q\"\n", "5: not valid YAML: found unknown escape character"},
		{"carriage returns", "domain: a\r\nx: y\r\n z: 1\r\n", "3: not valid YAML: mapping values are not allowed in this context"},
		{"the reader: a control character", "domain: a\nx: \x01\n", "2: not valid YAML: control characters are not allowed"},
		{"no UTF-8", "domain: a\nx: y\nz: \xff\n", "3: not valid YAML: invalid leading UTF-8 octet"},
		{"the composer: an unknown alias", descriptor + "    value: *b\n", "4: not valid YAML: unknown anchor 'b' referenced"},
		{"a second document with an error", "domain: a\n---\nx: ]\n", "3: not valid YAML: did not find expected node content"},
		{"a second document", "domain: a\n---\n\nx: y\n", "2: a second document"},
		{"an unknown field", descriptor + "    # x\n    Value: b\n", `5: unknown field "Value" of a descriptor`},
		{"a field twice", descriptor + "\n    key: b\n", `5: field "key" occurs twice: line 3 has it already`},
		{"a list for a text", descriptor + "    value:\n      - b\n", "5: value is a list: it must be a text"},
		{"a text for a list", descriptor + "    descriptors:\n      b\n", "5: descriptors is a single value: it must be a list"},
		{"a text for a mapping", descriptor + "    rate_limit: |\n      unit: day\n", "4: rate_limit is a single value"},
		{"a text for a number", descriptor + "    rate_limit:\n      unit: day\n      requests_per_unit: x\n", `6: requests_per_unit is "x"`},
		{"a text for a bool", descriptor + "    shadow_mode:\n      maybe\n", `5: shadow_mode is "maybe"`},
		{"a unit", descriptor + "    rate_limit:\n      requests_per_unit: 1\n      unit: eon\n", `6: unit "eon" is unknown`},
	} {
		_, err := Parse(filesOf(c.text), Options{})
		if !strings.HasPrefix(fmt.Sprint(err), "f1.yaml:"+c.want) {
			t.Errorf("%s: %q: %v\nwant f1.yaml:%s", c.kind, c.text, err, c.want)
		}
	}
}

func TestMetadataHasNumbersAndTexts(t *testing.T) {
	root := parse(t, "domain: a\ndescriptors:\n- {key: k, metadata: {x: 1.5e300, y: '.nan', z: [1, {inf: inf}]}, rate_limit: {unit: day}}").Domain("a")
	k, _ := root.Step("k", "")
	if got := fmt.Sprint(k.Rule.Metadata); got != "map[x:1.5e+300 y:.nan z:[1 map[inf:inf]]]" {
		t.Error(got)
	}
}

func TestEveryProblemIsReportedAtOnce(t *testing.T) {
	_, err := Parse(filesOf("domain: a\ndescriptors: 5\nx: 1", "domain: ''"), Options{})
	if got := strings.Count(fmt.Sprint(err), "\n") + 1; err == nil || got != 3 {
		t.Errorf("%d problems, want 3: %v", got, err)
	}
}

// The problems of the document and those of its tree are reported together, by line.
func TestEveryKindOfProblemIsReportedInTheOrderOfLines(t *testing.T) {
	_, err := Parse(filesOf(`domain: a
descriptors:
- key: a
  rate_limit: {unit: fortnight}
- key: b
  Value: x
- value: c
  descriptors:
  - key: d*
  - key: e
    shadow_mode: maybe
- key: f
- key: f
  rate_limit: {unit: eon}
`, "descriptors: [{value: x}]"), Options{})
	want := []string{
		`f1.yaml:4: unit "fortnight"`, `f1.yaml:6: unknown field "Value"`, `f1.yaml:7: a descriptor without a key`, `f1.yaml:9: key "d*"`,
		`f1.yaml:11: shadow_mode is "maybe"`, `f1.yaml:13: descriptor f occurs twice`, `f1.yaml:14: unit "eon"`,
		`f2.yaml:1: no domain`, `f2.yaml:1: a descriptor without a key`,
	}
	got := strings.Split(fmt.Sprint(err), "\n")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Fatalf("problem %d: %v\nwant %q", i+1, err, want)
		}
	}
}

func TestAMistakeIsOneProblem(t *testing.T) {
	for _, text := range []string{
		"domain: [a]\ndescriptors: []",
		"domain: a\ndescriptors: [b]",
		"domain: a\ndescriptors: [{key: [b]}]",
		"domain: a\ndescriptors: [{key: b}, {key: b, value: [c], share_threshold: true}]",
		"domain: a\ndescriptors: [{key: b, rate_limit: 5}]",
		"domain: a\ndescriptors: [{key: b, rate_limit: {unit: [day]}}]",
		"domain: a\ndescriptors: [{key: b, rate_limit: {unit: day, replaces: [c]}}]",
		"domain: a\ndescriptors: [{key: b, rate_limit: {unit: day, replaces: [{name: [c]}]}}]",
		"domain: a\ndescriptors: [&b {key: b}, {<<: *b, value: c}]",
		"domain: a\ndescriptors: [{key: b, rate_limit: {<<: {unit: day}}}]",
		"domain: a\n---\ndescriptors: []",
	} {
		if _, err := Parse(filesOf(text), Options{}); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q has the problems\n%v\nwant one", text, err)
		}
	}
}

func TestAFileReportsTwentyProblemsAtMost(t *testing.T) {
	_, err := Parse(filesOf("domain: a\ndescriptors:\n"+strings.Repeat("- value: b\n  x: 1\n", 20)), Options{})
	all := strings.Split(fmt.Sprint(err), "\n")
	if len(all) != 21 || all[20] != "f1.yaml: there are more problems" {
		t.Errorf("%d problems: %v", len(all), err)
	}
	_, err = Parse(filesOf("domain: a\ndescriptors:\n"+strings.Repeat("- value: b\n  x: 1\n", 10)), Options{})
	if all = strings.Split(fmt.Sprint(err), "\n"); len(all) != 20 {
		t.Errorf("%d problems, want 20: %v", len(all), err)
	}
}

func TestADomainHasOneFileUnlessSeveralAreAllowed(t *testing.T) {
	files := filesOf("domain: a\ndescriptors: [{key: x}]", "domain: a\ndescriptors: [{key: y}]")
	if _, err := Parse(files, Options{}); err == nil || !strings.Contains(err.Error(), `f2.yaml:1: domain "a" occurs twice: f1.yaml:1 has it already; give each domain one file, or join them with --rls-merge-domains`) {
		t.Error(err)
	}
	c, err := Parse(files, Options{Merge: true})
	if err != nil || c.Descriptors != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	files = filesOf("domain: a\ndescriptors: [{key: x}]", "domain: a\ndescriptors: [{key: x}]")
	if _, err := Parse(files, Options{Merge: true}); err == nil || !strings.Contains(err.Error(), "f2.yaml:2: descriptor x occurs twice: f1.yaml:2 has it") {
		t.Error(err)
	}
}

// 100,000 descriptors are read, and a file of aliases that stands for far more ends early.
func TestALargeConfigurationIsReadAndAHostileOneEnds(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: a\ndescriptors:\n")
	for i := range 20_000 {
		fmt.Fprintf(&b, "- {key: k, value: v%d, rate_limit: {unit: day, requests_per_unit: %d}}\n", i, i)
	}
	root := parse(t, b.String()).Domain("a")
	if n, _ := root.Step("k", "v19999"); n.Rule.Requests != 19_999 {
		t.Error(n.Rule)
	}
	b.Reset()
	b.WriteString("domain: a\ndescriptors:\n- &l0 {key: a}\n")
	for i := range 40 {
		fmt.Fprintf(&b, "- &l%d {key: k%d, descriptors: [*l%d, *l%d, *l%d]}\n", i+1, i, i, i, i)
	}
	if _, err := Parse(filesOf(b.String()), Options{}); err == nil || !strings.Contains(err.Error(), "aliases make the file too large") {
		t.Errorf("3^40 descriptors were read: %v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestADirectoryIsReadWithThoseInItAndWithoutHiddenFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b.yaml"), "domain: b")
	write(t, filepath.Join(dir, "sub", "a.yml"), "domain: a")
	write(t, filepath.Join(dir, ".hidden"), "domain: c")
	c, err := Read(dir, Options{})
	if err != nil || c.Domains() != 2 {
		t.Fatalf("%d domains, %v", c.Domains(), err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, Options{}); err == nil || !strings.Contains(err.Error(), "leads back") {
		t.Errorf("a loop of links: %v", err)
	}
	if _, err := Read(filepath.Join(dir, "none"), Options{}); err == nil {
		t.Error("a missing file was read")
	}
}

// A volume of Kubernetes is links to a link to a directory, and the link in the middle is swapped.
func TestASwappedLinkIsReadAtOnceAndAWrittenFileWhenItIsQuiet(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "..1", "a.yaml"), "domain: one")
	write(t, filepath.Join(dir, "..2", "a.yaml"), "domain: two")
	for link, to := range map[string]string{"..data": "..1", "a.yaml": filepath.Join("..data", "a.yaml")} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Unix(1_800_000_000, 0)
	files, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := NewFollower(dir, files, now)
	look := func(want string) {
		t.Helper()
		now = now.Add(LookEvery)
		files, err := f.Look(now)
		got := ""
		if len(files) == 1 {
			got = string(files[0].Text)
		}
		if err != nil || got != want {
			t.Fatalf("look: %q, %v, want %q", got, err, want)
		}
	}
	look("")
	if err := os.Symlink("..2", filepath.Join(dir, "..next")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	look("domain: two")
	look("")
	write(t, filepath.Join(dir, "..2", "a.yaml"), "domain: thr") // half of it
	look("")
	write(t, filepath.Join(dir, "..2", "a.yaml"), "domain: three")
	look("")
	look("")
	look("domain: three")
	look("")
	if err := os.RemoveAll(filepath.Join(dir, "..2")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	reported := 0
	for range 20 {
		now = now.Add(LookEvery)
		if _, err := f.Look(now); err != nil {
			reported++
		}
	}
	if reported != 1 {
		t.Errorf("a directory that has gone was reported %d times, want once", reported)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(tree)
	f.Add("domain: a\ndescriptors: [{key: a, descriptors: [{key: b, value: '*'}]}]")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(filesOf(text), Options{})
		if (c == nil) == (err == nil) {
			t.Errorf("%v and %v", c, err)
		}
	})
}
