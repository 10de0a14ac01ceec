package policyfile_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

// folder writes files, and returns their directory.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// withFields returns a policy of one limiter with more fields.
func withFields(fields ...string) string {
	return "limiters:\n  - name: api\n    routes: [/*]\n    windows: [5 per minute by ip]\n    " + strings.Join(fields, "\n    ") + "\n"
}

func TestAPolicyNamesFilesOfNetworksBesideIt(t *testing.T) {
	dir := folder(t, map[string]string{
		"conf/policy.yaml": withFields(`exempt: ["@office.txt", 10.0.0.0/8]`, `deny: ["@../blocked.txt", token abc]`, `overrides: ["6 per minute for @office two.txt"]`),
		"conf/office.txt":  "192.0.2.0/24\n", "conf/office two.txt": "203.0.113.7", "blocked.txt": "198.51.100.7\n",
	})
	f, err := policyfile.Load(filepath.Join(dir, "conf/policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	l := f.Policy.Limiters[0]
	if !l.Exempt[0].Networks.Contains(netip.MustParseAddr("192.0.2.9")) || !l.Deny[0].Networks.Contains(netip.MustParseAddr("198.51.100.7")) ||
		!l.Overrides[0].For.Networks.Contains(netip.MustParseAddr("203.0.113.7")) {
		t.Errorf("%+v", l)
	}
	const want = `limiters:
  - name: api
    routes: [/*]
    windows: [5 per minute by ip]
    exempt:
      - "@office.txt"
      - "10.0.0.0/8"
    deny:
      - "@../blocked.txt"
      - token abc
    overrides: [6 per minute for @office two.txt]
`
	written := string(policyfile.Marshal(f.Policy))
	if strings.ReplaceAll(written, `"6 per minute for @office two.txt"`, "6 per minute for @office two.txt") != want {
		t.Errorf("%s", written)
	}
	again, err := policyfile.Reader{Networks: policyfile.NetworksIn(filepath.Join(dir, "conf"))}.Parse("again", []byte(written))
	if err != nil || policyfile.Version(again.Policy) != policyfile.Version(f.Policy) {
		t.Errorf("what is written is read otherwise: %v", err)
	}
}

func TestAnotherFileOfNetworksIsAnotherVersion(t *testing.T) {
	version := func(text string) string {
		dir := folder(t, map[string]string{"policy.yaml": withFields(`deny: ["@blocked.txt"]`), "blocked.txt": text})
		f, err := policyfile.Load(filepath.Join(dir, "policy.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		return policyfile.Version(f.Policy)
	}
	one, same, other := version("10.0.0.1"), version("10.0.0.1"), version("10.0.0.2")
	if one != same {
		t.Error("two nodes with the same files have two versions")
	}
	if one == other {
		t.Error("two files have one version")
	}
}

func TestOneFileThatIsNamedTwiceIsOneSet(t *testing.T) {
	reads := 0
	r := policyfile.Reader{Networks: func(name string) (weir.Networks, error) {
		reads++
		return policyfile.ParseNetworks(name, name, []byte("10.0.0.1"))
	}}
	f, err := r.Parse("p", []byte(withFields(`deny: ["@a"]`, `overrides: ["6 per minute for @b", "7 per minute for @b"]`)))
	var bad *policyfile.Error
	if !errors.As(err, &bad) || len(bad.Problems) != 1 || !strings.Contains(bad.Problems[0].Message, "override of that length already") {
		t.Errorf("%v, %v", f, err)
	}
	if reads != 2 {
		t.Errorf("%d reads for two files", reads)
	}
}

func TestAFileOfNetworksThatCannotBeUsedRejectsThePolicy(t *testing.T) {
	dir := folder(t, map[string]string{
		"bad.txt": "10.0.0.1\n10.0.0.1/8\nfoo\n", "good.txt": "10.0.0.1",
		"policy.yaml": withFields(`exempt: ["@missing.txt", "@good.txt"]`, `deny: ["@bad.txt", "@.", "@bad.txt"]`),
	})
	_, err := policyfile.Load(filepath.Join(dir, "policy.yaml"))
	var bad *policyfile.Error
	if !errors.As(err, &bad) {
		t.Fatal(err)
	}
	var got []string
	for _, p := range bad.Problems {
		got = append(got, strings.ReplaceAll(p.String(), dir+"/", ""))
	}
	want := []string{
		`policy.yaml:5:14: @missing.txt: open missing.txt: no such file or directory`,
		`policy.yaml:6:12: @bad.txt: the file is not valid, so nothing of it is used`,
		`policy.yaml:6:24: @.: ` + dir + ` is a directory: one file is needed`,
		`policy.yaml:6:31: @bad.txt is denied twice: remove one`,
		`bad.txt:2:1: "10.0.0.1/8" has bits beyond its length: write 10.0.0.0/8, or the address without /8`,
		`bad.txt:3:1: "foo" is not an address: a line has one network (10.0.0.0/8) or one address (192.0.2.7), and # begins a comment`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAPolicyWithoutADirectoryNamesNoFiles(t *testing.T) {
	_, err := policyfile.Parse("text", []byte(withFields(`deny: ["@blocked.txt"]`)))
	if err == nil || !strings.Contains(err.Error(), "no directory to look for the file in") {
		t.Error(err)
	}
}

func TestAPolicyNamesABoundedNumberOfFiles(t *testing.T) {
	var names []string
	for i := range policyfile.MaxNetworks + 2 {
		names = append(names, `"@`+strings.Repeat("x", i+1)+`"`)
	}
	r := policyfile.Reader{Networks: func(name string) (weir.Networks, error) {
		return policyfile.ParseNetworks(name, name, nil)
	}}
	_, err := r.Parse("p", []byte(withFields(`deny: [`+strings.Join(names, ", ")+`]`)))
	var bad *policyfile.Error
	if !errors.As(err, &bad) || len(bad.Problems) != 2 || !strings.Contains(bad.Problems[0].Message, "more than 32 files") {
		t.Error(err)
	}
}

func TestANameOfNetworksOutsideQuotesHasAHint(t *testing.T) {
	for field, want := range map[string]string{
		`deny: [@blocked.txt]`:   `in quotes: "@office.txt"`,
		`deny: "@blocked.txt"`:   `put it in brackets, in quotes: ["@blocked.txt"]`,
		`deny: ["@"]`:            `"@" names no file`,
		`blacklist: [10.0.0.1]`:  `did you mean "deny"`,
		`deny: ["10.0.0.1/8"]`:   `write 10.0.0.0/8`,
		`deny: [session abc]`:    `sessions are short-lived`,
		`deny: [wpt_abc_secret]`: `this is a whole token`,
	} {
		_, err := policyfile.Parse("p", []byte(withFields(field)))
		if field == `deny: [wpt_abc_secret]` {
			if err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", field, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", field, err, want)
		}
	}
}

func TestDenyingEveryAddressIsAWarning(t *testing.T) {
	for text, every := range map[string]string{"0.0.0.0/0": "every IPv4 address", "::/0": "every IPv6 address"} {
		for _, field := range []string{`deny: ["` + text + `"]`, `deny: ["@all"]`, `exempt: ["@all"]`} {
			r := policyfile.Reader{Networks: func(name string) (weir.Networks, error) {
				return policyfile.ParseNetworks(name, name, []byte(text))
			}}
			f, err := r.Parse("p", []byte(withFields(field)))
			if err != nil || len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0].Message, every) {
				t.Errorf("%s: %v, %+v", field, err, f)
			}
		}
	}
}
