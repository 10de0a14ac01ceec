package main

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/identity"
)

// printed runs the program, which is used wrongly, and returns what it reports.
func printed(t *testing.T, arguments ...string) string {
	t.Helper()
	var out, report strings.Builder
	if status := run(arguments, nil, strings.NewReader(""), &out, &report); status == 0 || out.Len() > 0 {
		t.Errorf("weir %q: status %d, and standard output has %q", arguments, status, out.String())
	}
	return report.String()
}

func TestAnUnknownFlagNamesTheClosestOne(t *testing.T) {
	for arguments, want := range map[string]string{
		"serve --token-files keys":    `did you mean "--token-file"?`,
		"serve -listen=:80":           `did you mean "--listen"?`,
		"serve --port 80":             `did you mean "--listen"?`,
		"serve --nothing-like-it":     "see 'weir serve --help'",
		"serve -l":                    "see 'weir serve --help'",
		"policy check --jsn p":        `did you mean "--json"?`,
		"policy show --port":          "see 'weir policy show --help'",
		"simulate --formt combined":   `did you mean "--format"?`,
		"key show --tokens a":         `did you mean "--token"?`,
		"token hash --plam gold":      `did you mean "--plan"?`,
		"--versoin":                   `did you mean "--version"?`,
		"verify http://a --plicy p.y": `did you mean "--policy"?`,
	} {
		report := printed(t, strings.Fields(arguments)...)
		if first, hint, _ := strings.Cut(report, "\nhint: "); !strings.HasPrefix(first, "error: unknown ") || strings.TrimSpace(hint) != want {
			t.Errorf("weir %s reports\n%swant the hint %s", arguments, report, want)
		}
	}
}

// A key of base64url can begin with a dash.
func TestErrorsOfTokenDoNotRepeatAKey(t *testing.T) {
	const key = "sk_live_8fJ2kQx0vN4mZtR7cLwB1y"
	for _, arguments := range []string{
		"hash KEY", "hash -KEY", "hash --KEY", "hash ---KEY", "hash --=KEY", "hash --KEY=1", "hash --id acme -KEY", "hash -hKEY",
		"KEY", "-KEY", "--KEY", "list KEY", "list -KEY", "list --json KEY", "list --json=KEY", "create --json=+KEY", "create KEY", "create --workspace -KEY", "create --workspace a --plan +KEY",
		"revoke -KEY", "revoke 3f9a KEY", "plan -KEY gold", "plan 3f9a gold KEY", "plan 3f9a +KEY",
	} {
		report := printed(t, append([]string{"token"}, strings.Fields(strings.ReplaceAll(arguments, "KEY", key))...)...)
		if strings.Contains(report, key[2:12]) || !strings.HasPrefix(report, "error: ") {
			t.Errorf("weir token %s reports\n%s", arguments, report)
		}
	}
	if report := printed(t, "token", "hash", "-"+key); !strings.Contains(report, "a key is read from standard input") {
		t.Errorf("reported\n%s", report)
	}
	for _, id := range []string{"revoke " + key, "plan " + key + " gold"} {
		if report := printed(t, append([]string{"token"}, append(strings.Fields(id), "--data", t.TempDir())...)...); strings.Contains(report, key) {
			t.Errorf("weir token %s reports\n%s", id, report)
		}
	}
	if report := printed(t, "token", "mint"); !strings.Contains(report, `"weir token" has no command "mint"`) {
		t.Errorf("reported\n%s", report)
	}
	if _, err := identity.HashKey(key[:shortestKey-1]); err == nil {
		t.Errorf("a key may have fewer than %d characters", shortestKey)
	}
}
