package policyfile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/policyfile"
)

// settingsOf returns the settings of a source, one a line, and the problems.
func settingsOf(source string) (text string, err error) {
	var b strings.Builder
	err = policyfile.ParseSettings("c.yaml", []byte(source), func(s *policyfile.Setting) {
		fmt.Fprintf(&b, "%d %s", s.Line, s.Name)
		for _, v := range s.Values {
			fmt.Fprintf(&b, " [%s|%s|%s]", v.Key, v.Text, v.Kind)
		}
		b.WriteString("\n")
	}, "map")
	return b.String(), err
}

func TestSettingsAreReadInTheirThreeForms(t *testing.T) {
	got, err := settingsOf("# a comment\r\none: text # more\r\nport: :80\r\nn: 1e-05\r\nlist:\r\n  - a\r\n  - 2\r\n" +
		"flow: [on, true]\r\nmap: {a: x, \"*\": [y, 0x10]}\r\nother: {a: b}\r\n")
	want := `2 one [|text|text]
3 port [|:80|text]
4 n [|1e-05|text]
5 list [|a|text] [|2|a number]
8 flow [|on|text] [|true|true or false]
9 map [a|x|text] [*|y|text] [*|0x10|a number]
10 other
`
	if err != nil || got != want {
		t.Errorf("read as\n%s%v\nwant\n%s", got, err, want)
	}
}

func TestAMalformedConfigurationIsRejectedAtItsLine(t *testing.T) {
	for source, want := range map[string]string{
		"":                            "c.yaml: the file is empty: a configuration sets at least one value",
		"{}\n":                        "c.yaml:1:1: the file is empty",
		"# only\n\n# comments\n":      "c.yaml: the file is empty: a configuration sets at least one value",
		"\ufefflisten: :1\n":          "c.yaml:1:1: the file begins with a byte order mark: a configuration file is UTF-8 without one",
		"\xff\xfel\x00":               "c.yaml:1:1: the file is UTF-16: a configuration file must be UTF-8",
		"a: 1\n\tb: 2\n":              "c.yaml:2:1: a tab: YAML is indented with spaces",
		"a: 1\nb: 2\n\"a\": 3\n":      `c.yaml:3:1: "a" occurs twice: it is already on line 1`,
		"map: {a: x, a: y}\n":         `c.yaml:1:13: "a" occurs twice: it is already on line 1`,
		"a: &x 1\nb: *x\n":            `c.yaml:1:4: "&x" is an anchor: configuration files have no anchors`,
		"a: *\n":                      "configuration files have no aliases",
		"a: 1\n<<: {b: 1}\n":          `"<<" is a merge key: configuration files have no merge keys`,
		"a: !!str 1\n":                `configuration files have no tags`,
		"a: |\n  x\n":                 "every text of a configuration is on one line",
		"a: x\n  y\n":                 "a continues over several lines",
		"a: 1\n---\nb: 1\n":           "a configuration file is one document",
		"- a\n":                       "the file is a list: a mapping is needed",
		"a\n":                         "the file is text (a): a mapping is needed",
		"a:\n":                        "c.yaml:1:4: a is empty: a value is needed",
		"a: [1, ~]\n":                 "c.yaml:1:8: a[1] is empty: a value is needed",
		"a: []\n":                     "c.yaml:1:1: a has no value",
		"map: {}\n":                   "c.yaml:1:1: map has no value",
		"map:\n  a.b: 1\n  c.d:\n":    "c.yaml:3:8: c.d is empty: a value is needed",
		"map:\n  a.b: 1\n  c.d: []\n": "c.yaml:3:3: c.d has no value",
		"map:\n  a.b: [1, [2]]\n":     "a.b[1] is a list: one value is needed",
		"a: [[1]]\n":                  "a[0] is a list: one value is needed",
		"a: 'x\n":                     "not YAML",
		"a: [::1]:80\n":               "not YAML",
		"a: x\x00\n":                  "c.yaml:1:5: the control character U+0000",
		"\x7fELF\x02\x01\x00\x00":     "c.yaml: the file is not a text file: expected a configuration in YAML",
		"a: redis://u:secret@h: x":    "not YAML",
		"redis://u:secret@h/p: x\n":   "", // take reports the name
	} {
		_, err := settingsOf(source)
		var bad *policyfile.Error
		if want == "" && err == nil {
			continue
		}
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", source, err, want)
		}
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%q: the error shows a password: %v", source, err)
		}
	}
}

// A password must not survive in any field of a problem, also if the text is cut.
func TestProblemsOfSettingsShowNoPassword(t *testing.T) {
	long := "redis://:se cret/\"secret secret" + strings.Repeat("secret", 40) + "@h/0"
	source := fmt.Sprintf("a: %q\nb: {%q: 1}\n%q: 1\n%q: 2\nc: [%q, redis-sentinel://h/m?sentinel_password=secret]\n", long, long, long, long, long)
	err := policyfile.ParseSettings("c.yaml", []byte(source), func(s *policyfile.Setting) {
		s.Problem(-1, s.Name, "%q", s.Name)
		for i, v := range s.Values {
			s.Problem(i, "hint "+v.Text, "value %q", v.Text)
			s.KeyProblem(i, "hint "+v.Key, "key %q", v.Key)
		}
	}, "b")
	var bad *policyfile.Error
	if !errors.As(err, &bad) || len(bad.Problems) < 10 {
		t.Fatal(err)
	}
	for _, p := range bad.Problems {
		if text := fmt.Sprint(p); strings.Contains(text, "secret") {
			t.Errorf("a password is shown: %s", text)
		}
	}
}

func FuzzSettings(f *testing.F) {
	for _, source := range []string{"listen: :8080\n", "a: [b, c]\nmap: {\"*\": d, e: [f]}\n", "a: \"x\\ty\"\r\n", "a: redis://:p@h\n"} {
		f.Add([]byte(source))
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		settings := 0
		err := policyfile.ParseSettings("c.yaml", source, func(s *policyfile.Setting) {
			settings++
			for _, v := range s.Values {
				if s.Line < 1 || strings.ContainsAny(policyfile.Scalar(v.Text), "\n\r") {
					t.Errorf("setting %q on line %d has %q", s.Name, s.Line, v.Text)
				}
			}
		}, "map")
		if err == nil && settings == 0 {
			t.Errorf("%q has no setting and no problem", source)
		}
	})
}
