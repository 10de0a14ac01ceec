package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/headers"
)

// pageRows returns the lines of docs/fields.md that the tables make.
func pageRows() (rows []string) {
	code := func(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }
	for _, f := range Forwardings {
		written := "no"
		if f.Default {
			written = "yes"
		}
		rows = append(rows, "| `"+f.Name+"` | "+f.Value+" | "+written+" |")
	}
	rows = append(rows,
		"- Fields of one hop (RFC 9110, section 7.6.1), of requests and answers: "+code(HopFields)+".",
		"- What frames a request, from what Weir understood of it: "+code(FramingFields)+".")
	for _, f := range WithheldFamilies {
		rows = append(rows, "| "+f.Reason+" | "+code(f.Names)+" |")
	}
	for _, f := range CertificateFields {
		rows = append(rows, "| "+f.Reason+" | "+code(f.Names)+" |")
	}
	for _, r := range AnswerRows {
		rows = append(rows, "| "+code(r.Names)+" | "+r.What+" |")
	}
	return rows
}

// docs/fields.md has each row of the tables, and no row of a table that is not in the code.
func TestThePageOfFieldsIsMadeOfTheTables(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "fields.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines, rows := strings.Split(string(page), "\n"), pageRows()
	for _, row := range rows {
		if !slices.Contains(lines, row) {
			t.Errorf("docs/fields.md does not have the line\n%s", row)
		}
	}
	head := regexp.MustCompile(`^\| (field|what they name|who writes them|---)|^\|---`)
	for _, line := range lines {
		if strings.HasPrefix(line, "|") && !head.MatchString(line) && !slices.Contains(rows, line) {
			t.Errorf("docs/fields.md has a row that no table has:\n%s", line)
		}
	}
}

// Only fields that no client can send are written for an upstream, and every reserved field of an
// answer is on the page.
func TestTheTablesOfFieldsAgree(t *testing.T) {
	for _, f := range Forwardings {
		if !IsWithheld(f.Name) {
			t.Errorf("a client can send %s", f.Name)
		}
	}
	r := Rules{Options: Options{IETF: true}}
	for _, name := range []string{headers.Limit, headers.Remaining, headers.Reset, headers.RetryAfter, headers.Date, headers.RateLimit, headers.Policy} {
		if !r.IsReserved(name) || !slices.ContainsFunc(AnswerRows, func(row AnswerRow) bool { return slices.Contains(row.Names, name) }) {
			t.Errorf("%s is not reserved, or not in AnswerRows", name)
		}
	}
	for _, name := range slices.Concat(HopFields, FramingFields) {
		if lower := strings.ToLower(name); IsHop(lower) == IsFraming(lower) || IsForwarded(name) {
			t.Errorf("%s is forwarded, or both a field of one hop and one that frames", name)
		}
	}
}

func TestForwardedIsWrittenAsRFC7239SaysIt(t *testing.T) {
	for _, c := range []struct{ chain, host, want string }{
		{"192.0.2.1", "example.com", "for=192.0.2.1;host=example.com;proto=https"},
		{"192.0.2.1", "example.com:8443", `for=192.0.2.1;host="example.com:8443";proto=https`},
		{"2001:db8::1", "[2001:db8::2]:80", `for="[2001:db8::1]";host="[2001:db8::2]:80";proto=https`},
		{"192.0.2.1", `a"b\c`, `for=192.0.2.1;host="a\"b\\c";proto=https`},
		{"192.0.2.1", "", "for=192.0.2.1;proto=https"},
		{"2001:db8::1, 10.0.0.1, fd00::1", "a", `for="[2001:db8::1]";host=a;proto=https, for=10.0.0.1, for="[fd00::1]"`},
		{"", "a", "for=unknown;host=a;proto=https"},
	} {
		got := string(appendForwarded(nil, &Onward{ForwardedHost: c.host, ForwardedProto: "https"}, []byte(c.chain)))
		if got != c.want {
			t.Errorf("%q, host %q: %s, want %s", c.chain, c.host, got, c.want)
		}
	}
}

func TestAForwardingFieldThatIsNotKnown(t *testing.T) {
	if _, err := newForwardings([]string{"x-real-ip", "via"}); err == nil || !strings.Contains(err.Error(), `"via"`) || !strings.Contains(err.Error(), "x-forwarded-proto") {
		t.Errorf("%v", err)
	}
	if _, err := newForwardings([]string{"x-real-ip", NoForwarding}); err == nil {
		t.Error("none is accepted beside a field")
	}
}
