package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
)

// A flagged is a command with the flags of weir serve.
type flagged struct {
	*serveFlags
	cmd *cobra.Command
	out bytes.Buffer
}

// withFlags parses a command line, and the file that it names.
func withFlags(args ...string) (*flagged, error) {
	f := &flagged{serveFlags: defaultServeFlags(), cmd: &cobra.Command{Use: "serve"}}
	f.register(f.cmd)
	f.cmd.SetOut(&f.out)
	if err := f.cmd.ParseFlags(args); err != nil {
		return nil, err
	}
	return f, f.readConfig(f.cmd)
}

func writeFile(t interface{ Fatal(...any) }, path, text string) string {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// valueOf draws a value that a flag accepts, and that has no secret.
func valueOf(t *rapid.T, f *pflag.Flag) string {
	pick := func(all ...string) string { return rapid.SampledFrom(all).Draw(t, f.Name) }
	some := func(all ...string) string {
		return strings.Join(rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, -1, rapid.ID).Draw(t, f.Name), ",")
	}
	switch v := f.Value.(type) {
	case *cli.OnOff:
		return pick("on", "off", "true", "0")
	case *cli.Choice:
		return pick(v.Of...)
	case *cli.Number:
		return fmt.Sprint(rapid.IntRange(v.Min, v.Max).Draw(t, f.Name))
	case *cli.Size:
		return pick("1B", "1KiB", "1536MiB", "8589934591GiB")
	case *cli.MinRate:
		return pick("off", "1B", "64KiB")
	case *cli.Span:
		return pick(v.Min.String(), v.Max.String())
	case *checkPath:
		return pick("off", "/healthz", "/a?b=c")
	case *logFields:
		return pick("none", "upstream", "user_agent,request_id")
	case *cli.SizeOrOff:
		return pick("off", "1KiB", "16MiB")
	case *cli.SpanOrOff:
		return pick("off", "1s", "1h30m")
	case *controlPlane:
		return pick("h:1", "[::1]:18000")
	case *rlsHeaders:
		return pick("on", "off", "X-A,X-B,X-C")
	case *fraction:
		return pick("0", "1", "0.25", "1e-05")
	case *cli.ListenAddr, *cli.ListenOrSocket:
		return pick(":8080", "127.0.0.1:0", "[::1]:80", "[fe80::1%eth0]:1", "host:1")
	case *cli.OffOrListenAddr:
		return pick("", "off", ":9090", "[::]:1")
	case *cli.AdminAddr:
		return pick("", "off", "127.0.0.1:1", "http://h:2", "https://[::1]")
	case *cli.Endpoint:
		if f.Name == "events-url" {
			return pick("http://h", "https://h:1/")
		}
		return pick("http://h", "https://[::1]:1/a%2fb:c", "http://h/it's")
	case *edge.Store:
		return pick("memory", "redis://h:1", "rediss://h/3?prefix=a.b:c", "redis-sentinel://a,b:2/m")
	case *cli.Prefixes:
		return some("10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "::1")
	case *cli.Origins:
		return pick("*", "http://a", "http://a,https://b:1")
	case *cli.Paths:
		return pick("a.key", "/b c", "x, y: z", "- ", "*", "é#'\"\\")
	case *names:
		return some("a", "b.example.com", "C-1")
	case *certificateNames:
		return some("a.example.com", "API.example.com")
	case *email:
		return pick("ops@example.com", "a.b+c@example.com")
	case *methods:
		return some("PROPFIND", "PURGE")
	case *forwarded:
		if pick("none", "some") == "none" {
			return "none"
		}
		return some("x-real-ip", "forwarded", "x-forwarded-for")
	case *oneName:
		return pick("backend.example.com", "a")
	case *tokenPlaces:
		return some("bearer", "basic", "header:X-Key", "query:key")
	case *upstreams:
		return pick("http://a", "http://a:1,http://b:2", "x.example.com=http://c", "x.example.com=http://c,*=http://d", "*.example.com=https://d/p,https://e/p", "http://z,API.example.com=http://f")
	}
	if f.Value.Type() != "string" {
		t.Fatalf("no values for --%s, a %T: give it some", f.Name, f.Value)
	}
	return pick("plain", "a b", "a: b", "- a", "*", "'", `"\`, "#x", "true", "12", "null", "~", "é", "\t\n", "\u202e", "x |", "contract", "-", "./contract", "{a}", "[b", "& c", "! d", "%e", "@f", "`", "http://u:p@h")
}

// What --print-config prints is read again as the same settings, in any directory.
func TestAPrintedConfigurationIsReadAsItself(t *testing.T) {
	dir := t.TempDir()
	schema := resolvedSchema(t)
	rapid.Check(t, func(t *rapid.T) {
		var args []string
		for _, f := range settingFlags(mustFlags(t).cmd) {
			for n := rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "given"); n > 0; n-- {
				args = append(args, "--"+f.Name+"="+valueOf(t, f))
			}
		}
		given, err := withFlags(args...)
		if err != nil {
			t.Fatal(err)
		}
		if err := writeConfig(given.cmd); err != nil {
			t.Fatal(err)
		}
		path := writeFile(t, filepath.Join(dir, "weir.yaml"), given.out.String())
		again, err := withFlags("--config", path)
		if err != nil {
			t.Fatalf("%v\n%s", err, given.out.String())
		}
		for _, f := range settingFlags(given.cmd) {
			want, got := textOf(f), textOf(again.cmd.Flags().Lookup(f.Name))
			if want != got {
				t.Errorf("--%s is %q, and read as %q from\n%s", f.Name, want, got, given.out.String())
			}
		}
		if err := writeConfig(again.cmd); err != nil || again.out.String() != given.out.String() {
			t.Errorf("printed again, it is (%v)\n%s\ninstead of\n%s", err, again.out.String(), given.out.String())
		}
		validate(t, schema, given.out.String())
	})
}

func mustFlags(t *rapid.T) *flagged {
	f, err := withFlags()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// textOf returns the value of a flag, and whether it was given.
func textOf(f *pflag.Flag) string {
	value := f.Value.String()
	if list, ok := f.Value.(*cli.Paths); ok {
		all := slices.Clone(*list)
		for i := range all {
			all[i] = absolute(all[i])
		}
		value = fmt.Sprintf("%q", all)
	} else if cli.NamesFile(f) && f.Changed && !isNoFile(f, value) {
		value = absolute(value)
	}
	return fmt.Sprint(value, f.Changed || f.Name == "listen")
}

func resolvedSchema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(configSchema(), &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

func validate(t interface{ Errorf(string, ...any) }, schema *jsonschema.Resolved, text string) {
	var value map[string]any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Errorf("%v", err)
		return
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("the schema rejects what is valid: %v\n%s", err, text)
	}
}

// The schema rejects what an editor can see, as reading does.
func TestTheSchemaOfAConfigurationRejectsWhatReadingRejects(t *testing.T) {
	schema, dir := resolvedSchema(t), t.TempDir()
	for _, text := range []string{
		"lisen: ':1'", "log-format: loud", "candidate: [a]", "candidate: ''", "tls-cert: ''", "tls-cert: 1", "access-log: maybe", "ipv6-prefix: 129", "trace-ratio: 2",
		"memory: 64", "memory: 64mb", "jwt-key: [1]", "admin-hosts: [1]", "policy: {limiters: []}", "upstream: {a.example.com: {b: c}}", "jwt-key: []", "{}",
	} {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		_, err := withFlags("--config", writeFile(t, filepath.Join(dir, "weir.yaml"), text+"\n"))
		if inEditor := schema.Validate(value); inEditor == nil || err == nil {
			t.Errorf("%s: the schema returns %v, and reading %v", text, inEditor, err)
		}
	}
}

// A block of settings in the documents is valid.
func TestTheSettingsOfTheDocumentsAreReal(t *testing.T) {
	found := 0
	for page, text := range documents(t) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			if m[1] != "yaml settings" {
				continue
			}
			found++
			validate(t, resolvedSchema(t), m[2])
			if _, err := withFlags("--config", writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), m[2])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	if found == 0 {
		t.Error("no document has settings")
	}
}

// Every flag with a variable is a setting, and nothing else is.
func TestEverySettingIsAFlag(t *testing.T) {
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal(configSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	cmd, settings := newServe(nil), 0
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		path := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), f.Name+": ''\n")
		_, err := withFlags("--config", path)
		unknown := err != nil && strings.Contains(err.Error(), "is not a setting")
		_, described := schema.Properties[f.Name]
		if mode := slices.Contains([]string{"config", "check", "print-config", "help"}, f.Name); unknown != mode || described == mode {
			t.Errorf("--%s: in a file %v, in the schema %v", f.Name, err, described)
		}
		settings++
	})
	if settings < 40 {
		t.Errorf("%d flags", settings)
	}
}

func TestTheCommandLineOverridesVariablesAndTheyTheFile(t *testing.T) {
	dir := t.TempDir()
	path := writeFile(t, filepath.Join(dir, "weir.yaml"),
		"memory: 1MiB\nmax-data: 1MiB\nlog-format: json\nupstream: http://file\njwt-key: file.key\npolicy: sub/p.yaml\ncandidate: /c.yaml\n")
	f := &flagged{serveFlags: defaultServeFlags(), cmd: &cobra.Command{Use: "serve"}}
	f.register(f.cmd)
	if err := f.cmd.ParseFlags([]string{"--memory=3MiB", "--upstream=http://line"}); err != nil {
		t.Fatal(err)
	}
	env := cli.Environment{"WEIR_CONFIG": path, "WEIR_MEMORY": "2MiB", "WEIR_MAX_DATA": "2MiB", "WEIR_LOG_FORMAT": "", "WEIR_JWT_KEY": "one,two"}
	if err := env.Apply(f.cmd); err != nil {
		t.Fatal(err)
	}
	if err := f.readConfig(f.cmd); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(&f.memory, &f.maxData, f.logFormat.Value, f.upstream.String(), f.jwtKeys, f.policy, f.candidate)
	if want := fmt.Sprintln("3MiB", "2MiB", "json", "http://line", []string{"one", "two"}, filepath.Join(dir, "sub/p.yaml"), "/c.yaml"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	given := fmt.Sprint(cli.GivenAs(f.cmd, "memory"), cli.GivenAs(f.cmd, "max-data"), cli.GivenAs(f.cmd, "policy"), cli.GivenItself(f.cmd, "policy"))
	if want := fmt.Sprint("--memory", "variable WEIR_MAX_DATA", "policy ("+path+":6)", false); given != want {
		t.Errorf("%s, want %s", given, want)
	}
}

// A value is checked even if the command line overrides it, and a file with a problem sets nothing.
func TestAnOverriddenValueIsCheckedToo(t *testing.T) {
	path := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), "log-format: json\nmemory: lots\n")
	f, err := withFlags("--config", path, "--memory", "1GiB")
	if err == nil || !strings.Contains(err.Error(), `weir.yaml:2:9: memory "lots": expected a whole number`) {
		t.Errorf("%v", err)
	}
	if f.logFormat.Value != "text" {
		t.Error("half of the file is in force")
	}
}

func TestTheBackendsOfAMappingAreThoseOfTheFlag(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct{ file, flags string }{
		{"upstream: http://a", "http://a"},
		{"upstream: http://a,http://b", "http://a,http://b"},
		{"upstream: [http://a, http://c, x.example.com=http://b]", "http://a,http://c,x.example.com=http://b"},
		{"upstream: [x.example.com=http://b, '*=http://c']", "x.example.com=http://b,*=http://c"},
		{"upstream: ['x.example.com=http://b,http://c', X.example.com.=http://d]", "x.example.com=http://b,http://c,http://d"},
		{"upstream: {X.example.com.: [http://b, 'http://c,http://d'], '*': http://a}", "http://a,x.example.com=http://b,http://c,http://d"},
		{"upstream: {intranet: http://b}", "intranet.=http://b"},
		{"upstream: {'*.example.com': http://b}", "*.example.com=http://b"},
	} {
		path := writeFile(t, filepath.Join(dir, fmt.Sprint(i)), c.file+"\n")
		got, err := withFlags("--config", path)
		if err != nil {
			t.Error(err)
			continue
		}
		want, err := withFlags("--upstream", c.flags)
		if err != nil {
			t.Fatal(err)
		}
		items := func(f *flagged) string { all := f.upstream.Items(); slices.Sort(all); return strings.Join(all, " ") }
		if items(got) != items(want) {
			t.Errorf("%s: %s, want %s", c.file, items(got), items(want))
		}
	}
	for text, want := range map[string]string{
		"upstream:\n  api.example.com: http://a\n  API.example.com.: http://b\n":     `:3:3: "API.example.com." is the same host as "api.example.com" on line 2`,
		"upstream:\n  api.example.com: http://a\n  api.example.com: http://b\n":      `:3:3: "api.example.com" occurs twice: it is already on line 2`,
		"upstream:\n  bücher.example: http://a\n  xn--bcher-kva.example: http://b\n": `:3:3: "xn--bcher-kva.example" is the same host as "bücher.example" on line 2`,
		"upstream: {POST api.example.com: http://a}\n":                               "expected a name such as",
		"upstream: {api.example.com:80: http://a}\n":                                 "",
		"upstream: {a.example.com: 'http://a,b.example.com=http://b'}\n":             "has a host before it",
		"upstream: [a.example.com=http://a, http://b]\n":                             "http://b has no host, and comes after one that has",
		"upstream: [http://a, b.example.com=http://b, http://c]\n":                   "*=http://c for all hosts that no other names, or b.example.com=http://c",
		"upstream: {'*': [http://a, http://a]}\n":                                    "is given twice",
		"upstream: {'*': [http://a, https://b]}\n":                                   "all http, all https, or all Unix sockets",
		"upstream: {'*': ['http://127.0.0.1:1', 'unix:/run/app.sock']}\n":            "http://127.0.0.1:1 and unix:/run/app.sock: the addresses of one backend",
		"upstream: {a.example.com: {b: c}}\n":                                        "one value is needed",
		"policy: {limiters: [{name: a}]}\n":                                          ":1:1: policy is a mapping",
		"store: redis://:secret@h:1/x\n":                                             `store "redis://…"`,
		"store: [redis://:secret@h:1/x]\n":                                           "store is a list",
		"jwks: http://u:secret@h\n":                                                  `jwks "http://…@h"`,
		"log-format: redis://u:secret@h\n":                                           `log-format "redis://…@h": expected text or json`,
		"redis://u:secret@h/p: 1\n":                                                  "is not a setting",
		"ipv6-prefix: 129\nipv6_prefix: 1\n":                                         `:1:14: ipv6-prefix "129": expected a whole number from 1 to 128`,
		"Listen: :1\nlisten: :2\n":                                                   `did you mean "listen"?`,
	} {
		path := writeFile(t, filepath.Join(dir, "bad.yaml"), text)
		_, err := withFlags("--config", path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s%v\nwant %s", text, err, want)
		}
	}
}

// Several flags mean what a list in the file means: no URL changes its host by where it is.
// A flag with several values has a list in a file.
func TestTheFieldsOfTheAccessLogAreAList(t *testing.T) {
	for text, want := range map[string]string{"[upstream, user_agent]": "user_agent,upstream", "[none]": "none", "upstream": "upstream"} {
		path := writeFile(t, filepath.Join(t.TempDir(), "weir.yaml"), "access-log-fields: "+text+"\n")
		f, err := withFlags("--config", path)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Split(f.logFields.String(), ","); strings.Join(slices.Sorted(slices.Values(got)), ",") != strings.Join(slices.Sorted(slices.Values(strings.Split(want, ","))), ",") {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
}

func TestAnUpstreamMeansTheSameInAnyForm(t *testing.T) {
	if f, err := withFlags("--upstream", "a.example.com=http://one", "--upstream", "*=http://two"); err != nil || f.upstream.String() != "a.example.com=http://one,*=http://two" {
		t.Errorf("%v, %v", f, err)
	}
	_, err := withFlags("--upstream", "a.example.com=http://one", "--upstream", "http://two")
	if err == nil || !strings.Contains(err.Error(), "has no host, and comes after one that has") {
		t.Error(err)
	}
}

func TestAPrintedConfigurationHasNoSecret(t *testing.T) {
	f, err := withFlags("--store=redis://:hidden@h:1", "--events-url=https://h/hidden", "--jwks=https://h/k?key=hidden", "--traces=https://h/?key=hidden")
	if err != nil {
		t.Fatal(err)
	}
	if err := writeConfig(f.cmd); err != nil {
		t.Fatal(err)
	}
	text := f.out.String()
	if strings.Contains(text, "hidden") {
		t.Errorf("a secret is printed:\n%s", text)
	}
	for _, want := range []string{"\n# store: not printed, since it may hold a secret; give it in WEIR_STORE\n", "WEIR_EVENTS_URL\n", "WEIR_JWKS\n", "WEIR_TRACES\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
}
