package rules

import (
	"net/url"
	"testing"
)

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
