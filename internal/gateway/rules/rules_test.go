package rules

import (
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/logtest"
)

func TestAForwarderIsLoggedWithItsAddressIfItHasOne(t *testing.T) {
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for peer, want := range map[netip.Addr]string{
		netip.MustParseAddr("192.0.2.1"): "peer=192.0.2.1\n",
		{}:                               "named in --trusted-proxies\"\n",
	} {
		log := new(logtest.Buffer)
		r := &Rules{Options: Options{Identity: who, Log: slog.New(slog.NewTextHandler(log, nil))}}
		for range 2 {
			r.NoteForwarder(peer, "x-forwarded-for")
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, want) {
			t.Errorf("peer %v: the log is %q, want one line that ends in %q", peer, text, want)
		}
	}
}

func TestAnUpstreamsOwnHostComesFromItsURL(t *testing.T) {
	for upstream, want := range map[string]string{
		"http://api.example.com":            "api.example.com",
		"https://api.example.com:8443/base": "api.example.com:8443",
		"http://[2001:db8::1]:80":           "[2001:db8::1]:80",
		"http://[fe80::1%25eth0]:8080":      "[fe80::1]:8080",
		"http://[fe80::1%25eth0]":           "[fe80::1]",
	} {
		t.Run(upstream, func(t *testing.T) {
			u, err := url.Parse(upstream)
			if err != nil {
				t.Fatal(err)
			}
			if got := hostOf(u); got != want {
				t.Errorf("%s has the host %q, want %q", upstream, got, want)
			}
		})
	}
}
