package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/cli"
)

// checked runs --check for the settings of a file and a policy, and returns what it prints.
func checked(t *testing.T, settings, policy string) (stdout, stderr string, err error) {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "policy.yaml"), policy)
	f, err := withFlags("--config", writeFile(t, filepath.Join(dir, "weir.yaml"), settings))
	if err != nil {
		return "", "", err
	}
	var problems bytes.Buffer
	f.cmd.SetErr(&problems)
	err = f.checkAll(f.cmd, cli.Environment{})
	return f.out.String(), problems.String(), err
}

// onePolicy limits every request.
const onePolicy = "limiters:\n  - {name: all, routes: [/*], windows: [9 per minute by ip]}\n"

// What keeps a server from its start, and needs no file and no network, keeps --check from saying
// that it can start.
func TestACheckFindsWhatAStartRejects(t *testing.T) {
	const before = "policy: policy.yaml\n"
	for settings, want := range map[string]string{
		"upstream: http://127.0.0.1:8080\n":                                       "this server itself listens on :8080 (--listen)",
		"listen: 127.0.0.1:9000\nupstream: http://localhost:9000\n":               "this server itself listens on 127.0.0.1:9000 (--listen)",
		"listen: :9000\nadmin: 127.0.0.1:3000\nupstream: http://127.0.0.1:3000\n": "this server itself listens on 127.0.0.1:3000 (--admin)",
		"metrics: 127.0.0.1:9100\nupstream: http://127.0.0.1:9100\n":              "this server itself listens on 127.0.0.1:9100 (--metrics)",
		"upstream: http://127.0.0.1:3000/?a=b\n":                                  "only a scheme, a host and a base path are allowed",
		"upstream: http://127.0.0.1:3000/%2f\n":                                   "has an escaped slash",
		"upstream: [" + strings.Repeat("http://h:1, ", 64) + "http://h:2]\n":      "given twice",
		"upstream: " + manyAddresses(65) + "\n":                                   "65 upstream addresses: 1 to 64 are allowed",
		"upstream: http://127.0.0.1:3000\nmetrics-open: on\n":                     "--metrics-open has no effect without a listener for metrics",
		"upstream: http://127.0.0.1:3000\njwks: http://x.example.com/z\n":         "an https URL is needed",
	} {
		stdout, stderr, err := checked(t, before+settings, onePolicy)
		if text := stderr + fmt.Sprint(err); err == nil || stdout != "" || !strings.Contains(text, want) {
			t.Errorf("%s%s%s\nwant %s", settings, stdout, text, want)
		}
	}
	for _, settings := range []string{
		"upstream: http://127.0.0.1:3000/base\n", "upstream: http://127.0.0.1:3000\nmetrics: :9100\nmetrics-open: on\n",
		"upstream: http://127.0.0.1:3000\njwks: http://localhost/z\n", "upstream: " + manyAddresses(64) + "\n",
	} {
		if stdout, stderr, err := checked(t, before+settings, onePolicy); err != nil || stderr != "" || !strings.Contains(stdout, "fit together") {
			t.Errorf("%s%v\n%s%s", settings, err, stdout, stderr)
		}
	}
}

// --check prints what a start would warn of, once each, and still is a success.
func TestACheckPrintsTheWarningsOfAStart(t *testing.T) {
	policy := "limiters:\n  - {name: api, requires: token, routes: [api.example.com/*, PROPFIND api.example.com/dav], windows: [9 per minute by ip]}\n" +
		"  - {name: old, routes: [old.example.com/*, CONNECT api.example.com/x], windows: [9 per minute by ip]}\n"
	stdout, stderr, err := checked(t, "policy: policy.yaml\ncandidate: policy.yaml\nupstream: {api.example.com: 'http://h:1', shop.example.com: 'http://h:2'}\n", policy)
	if err != nil || !strings.Contains(stdout, "fit together") {
		t.Errorf("%v\n%s", err, stdout)
	}
	for _, want := range []string{
		"answered 421: give --upstream HOST=URL, or correct the routes (host old.example.com)\n",
		"not limited: add a route HOST/*, or correct --upstream (host shop.example.com)\n",
		"the server answers 405: give --methods PROPFIND, or correct the route (method PROPFIND, limiter api, route PROPFIND api.example.com/dav)\n",
		"forwarded (limiters api, requires token, flags --tokens verifies those of 'weir token create', --token-file others)\n",
	} {
		if strings.Count(stderr, want) != 1 {
			t.Errorf("want one warning %q:\n%s", want, stderr)
		}
	}
}

// manyAddresses returns addresses of one backend.
func manyAddresses(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("http://h:%d", i+1)
	}
	return strings.Join(all, ",")
}
