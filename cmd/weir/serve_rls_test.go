package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
)

// withVariables returns the flags of weir serve with those of envoyproxy/ratelimit.
func withVariables(t *testing.T, variables ...string) (*serveFlags, *cobra.Command, error) {
	t.Helper()
	f, cmd := defaultServeFlags(), &cobra.Command{Use: "serve"}
	f.register(cmd)
	if err := cmd.ParseFlags([]string{"--rls-env", "--rls-near-ratio=0.5"}); err != nil {
		t.Fatal(err)
	}
	return f, cmd, f.readRLSVariables(cmd, cli.ParseEnvironment(variables))
}

func TestRedisVariablesOfEnvoysServiceAreAStore(t *testing.T) {
	for variables, want := range map[string]string{
		"": "memory",
		"REDIS_URL=redis:6379 REDIS_SOCKET_TYPE=tcp":                               "redis://redis:6379",
		"REDIS_URL=redis:6379 REDIS_AUTH=p@s:s":                                    "redis://redis:6379 with user \"p@s\"",
		"REDIS_URL=a:1,b:2 REDIS_TYPE=CLUSTER CACHE_KEY_PREFIX=rl":                 "redis://a:1,b:2?prefix=rl",
		"REDIS_URL=main,s1:26379,s2:26379 REDIS_TYPE=SENTINEL REDIS_TLS=true":      "rediss-sentinel://s1:26379,s2:26379/main",
		"REDIS_URL=rediss://u:p@h:6379":                                            "rediss://h:6379",
		"REDIS_URL=redis:6379 REDIS_TYPE=single REDIS_TLS=false REDIS_POOL_SIZE=3": "redis://redis:6379",
	} {
		f, _, err := withVariables(t, strings.Fields(variables)...)
		want, _, _ := strings.Cut(want, " with")
		if got := f.store.String(); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", variables, got, err, want)
		}
	}
}

func TestVariablesOfEnvoysServiceAreDefaultsOfFlags(t *testing.T) {
	f, cmd, err := withVariables(t, "NEAR_LIMIT_RATIO=0.9", "GRPC_UDS=/run/rls.sock", "RUNTIME_ROOT=/r", "RUNTIME_SUBDIRECTORY=s", "QUOTA_MODE=1", "USE_PROMETHEUS=true")
	if err != nil {
		t.Fatal(err)
	}
	if f.rls.near != 0.5 || f.rls.listen != "unix:/run/rls.sock" || f.rls.http != ":8080" || f.rls.config != "/r/s/config" || !bool(f.rls.quota) || f.metrics != ":9090" || !bool(f.metricsOpen) || f.admin.At != "" {
		t.Errorf("%+v, metrics %q, admin %q", f.rls, f.metrics, f.admin.At)
	}
	if got := cli.GivenAs(cmd, "rls-quota"); got != "variable QUOTA_MODE" {
		t.Errorf("an error names it %s", got)
	}
	if err := f.check(cmd); err != nil {
		t.Errorf("they do not fit together: %v", err)
	}
}

func TestFlagsAboutEnvoysServiceFitTogether(t *testing.T) {
	for args, want := range map[string]string{
		"--rls :1":                                                 "--rls needs the limits to answer by",
		"--rls :1 --rls-config d --rls-xds h:1":                    "rls-config and --rls-xds both have the limits",
		"--rls :1 --rls-config d --rls-xds-node n":                 "--rls-xds-node has no effect without --rls-xds",
		"--rls :1 --rls-xds h:1 --rls-xds-cert c":                  "go together",
		"--rls :1 --rls-xds h":                                     "expected HOST:PORT",
		"--rls :1 --rls-xds h:1 --rls-xds-ca c":                    "",
		"--rls-http :1":                                            "--rls-http has no effect without --rls",
		"--rls :1 --rls-config d --policy p":                       "--policy has no effect with --rls alone",
		"--rls :1 --rls-config d --rls-client-ca f":                "--rls-client-ca has no effect without TLS",
		"--rls :1 --rls-config d --listen :2":                      "--listen has no effect with --rls alone",
		"--rls :1 --rls-config d --admin 127.0.0.1:1":              "is where",
		"--rls :1 --rls-config d --rls-headers a,b":                "expected on, off, or the names of three fields",
		"--rls :1 --rls-config d --rls-headers a,b,c:d":            "expected on, off, or the names of three fields",
		"--rls :1 --rls-config d --rls-headers b,content-Length,c": "content-Length belongs to HTTP or to the proxy: expected names of fields of their own, such as RateLimit-Limit",
		"--rls :1 --rls-config d --rls-headers Host,b,c":           "Host belongs to HTTP",
		"--rls :1 --rls-config d --rls-near-ratio 2":               "expected a number from 0 to 1",
		"--rls :1 --rls-config d --rls-windows sliding":            "first-hit",
		"--rls :1 --rls-config d --upstream http://a":              "--upstream needs --policy",
		"--rls :1 --rls-config d --tls-cert c --tls-key k":         "",
	} {
		f, err := withFlags(strings.Fields(args)...)
		if err == nil {
			err = f.check(f.cmd)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

func TestTheNameOfEnvoysServiceIsACommand(t *testing.T) {
	for command, want := range map[string]string{"/bin/ratelimit": "serve --rls-env", "ratelimit version": "version", "weir": "", "/bin/weir serve": "serve"} {
		if got := strings.Join(arguments(strings.Fields(command)), " "); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

func TestCheckReadsTheLimitsOfEnvoy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edge.yaml")
	for text, want := range map[string]string{
		"domain: a\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]":  "edge.yaml: valid, 1 domain with 1 limit\n",
		"domain: a\ndescriptors: [{key: a, rate_limit: {unit: year, requests_per_unit: 1}}]": "edge.yaml:2: unit \"year\"",
	} {
		writeFile(t, path, text)
		var out strings.Builder
		if code := run([]string{"serve", "--check", "--rls", ":1", "--rls-config", path}, nil, strings.NewReader(""), &out, &out); !strings.Contains(out.String(), want) || (code == 0) != strings.HasSuffix(want, "\n") {
			t.Errorf("%s: status %d, %s, want %q", text, code, out.String(), want)
		}
	}
}
