package engines

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A testCase is a byte stream with its expected outcome. In testdata/*.txt it looks like this:
//
//	=== a length with a sign
//	# why it is here
//	> POST /a HTTP/1.1                          a line, and CRLF; Go's escapes, and {{70000*x}} for many
//	> Content-Length: +3
//	>
//	~ abc                                       no CRLF after it
//	|                                           the rest is sent after an answer
//	once                                        only whole: in pieces the outcome would be random
//	want: nothing -> 400                        the outcome, as in outcome.summary
//	nginx [signed-length]: POST /a -> 200 end   nginx's outcome, and the row of docs/engines.md that explains it
//
// Every stream is followed by the farewell. If "want" and an exception are equal,
// the difference is in fields or bodies.
type testCase struct {
	file, name string
	parts      []string // of the stream
	once       bool
	want       string
	except     map[string]exception // by subject
}

type exception struct{ row, want string }

var exceptLine = regexp.MustCompile(`^(std|nginx) \[([a-z0-9-]+)\]: (.+)$`)

// readCases reads every case of testdata.
func readCases(t testing.TB) []testCase {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata holds no cases: %v", err)
	}
	var cases []testCase
	names := map[string]bool{}
	for _, file := range files {
		text, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for lines := bufio.NewScanner(text); lines.Scan(); {
			n++
			line := lines.Text()
			if name, ok := strings.CutPrefix(line, "=== "); ok {
				if names[name] {
					t.Fatalf("%s:%d: there is another %q", file, n, name)
				}
				names[name] = true
				cases = append(cases, testCase{file: filepath.Base(file), name: name, except: map[string]exception{}})
				continue
			}
			if line == "" || line[0] == '#' {
				continue
			}
			if len(cases) == 0 || !cases[len(cases)-1].add(line) {
				t.Fatalf("%s:%d: %q is not a valid line of a case", file, n, line)
			}
		}
		_ = text.Close() // the file was only read
	}
	for _, c := range cases {
		if len(c.parts) == 0 || c.want == "" {
			t.Fatalf("%s: %q has no stream, or no outcome", c.file, c.name)
		}
	}
	return cases
}

// add parses one line of a case, and reports whether it is valid.
func (c *testCase) add(line string) bool {
	if m := exceptLine.FindStringSubmatch(line); m != nil {
		c.except[m[1]] = exception{m[2], m[3]}
		return true
	}
	if want, ok := strings.CutPrefix(line, "want: "); ok {
		c.want = want
		return true
	}
	end := "\r\n"
	switch line[0] {
	case 'o':
		c.once = line == "once"
		return c.once
	case '|':
		c.parts = append(c.parts, "")
		return line == "|"
	case '~':
		end = ""
	case '>':
	default:
		return false
	}
	bytes, ok := unquote(strings.TrimPrefix(line[1:], " "))
	if len(c.parts) == 0 {
		c.parts = []string{""}
	}
	c.parts[len(c.parts)-1] += bytes + end
	return ok
}

var manyForm = regexp.MustCompile(`\{\{(\d+)\*([^}]+)\}\}`)

func unquote(s string) (string, bool) {
	s, err := strconv.Unquote(`"` + strings.ReplaceAll(s, `"`, `\"`) + `"`)
	s = manyForm.ReplaceAllStringFunc(s, func(many string) string {
		m := manyForm.FindStringSubmatch(many)
		n, _ := strconv.Atoi(m[1]) // digits
		return strings.Repeat(m[2], n)
	})
	return s, err == nil
}
