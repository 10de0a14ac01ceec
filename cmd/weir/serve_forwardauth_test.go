package main

import (
	"strings"
	"testing"
)

func TestFlagsAboutForwardAuthFitTogether(t *testing.T) {
	const asks = "--policy p --forward-auth :1 --forward-auth-proxy nginx"
	for args, want := range map[string]string{
		asks + " --forward-auth-peers 127.0.0.1":                               "",
		asks + " --forward-auth-peers 10.0.0.0/8,fd00::/8 --upstream http://a": "",
		"--policy p --forward-auth unix:/s --forward-auth-proxy envoy-grpc":    "",
		asks:                                                    "--forward-auth needs to know whom to believe",
		asks + " --forward-auth-peers ":                         "neither a network nor an address",
		asks + " --forward-auth-peers localhost":                "localhost",
		asks + " --forward-auth-peers 10.0.0.1/8":               "10.0.0.1/8",
		asks + " --forward-auth-peers 300.0.0.1":                "300.0.0.1",
		"--policy p --forward-auth :1 --forward-auth-peers ::1": "--forward-auth needs to know which proxy asks",
		"--policy p --forward-auth :1 --forward-auth-peers ::1 --forward-auth-proxy apache":     "nginx or traefik or caddy or envoy",
		"--forward-auth :1 --forward-auth-proxy caddy --forward-auth-peers ::1":                 "--forward-auth needs --policy",
		"--policy p --forward-auth-proxy nginx":                                                 "--forward-auth-proxy has no effect without --forward-auth",
		"--policy p --forward-auth-peers ::1":                                                   "--forward-auth-peers has no effect without --forward-auth",
		"--policy p --forward-auth unix:/s --forward-auth-proxy nginx --forward-auth-peers ::1": "has no effect at a Unix socket",
		"--policy p --forward-auth unix:s --forward-auth-proxy nginx":                           "unix:",
		asks + " --forward-auth-peers ::1 --listen :2":                                          "--listen has no effect with --forward-auth alone",
		asks + " --forward-auth-peers ::1 --engine std":                                         "--engine has no effect with --forward-auth alone",
		asks + " --forward-auth-peers ::1 --token-file k --token-from header:X-Api-Key":         "",
		asks + " --forward-auth-peers ::1 --token-file k --token-forward none":                  "--token-forward has no effect with --forward-auth alone",
		asks + " --forward-auth-peers ::1 --admin 127.0.0.1:1":                                  "is where",
		asks + " --forward-auth-peers ::1 --upstream http://a --listen :1":                      "is where",
	} {
		f, err := withFlags(strings.Split(args, " ")...)
		if err == nil {
			err = f.check(f.cmd)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
