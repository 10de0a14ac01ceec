package upstream

import (
	"net/url"
	"testing"
)

func TestAnAddressHasAnEndpoint(t *testing.T) {
	for rawURL, want := range map[string]struct {
		host string
		port int
	}{
		"http://app.example.com/base": {"app.example.com", 80},
		"https://app.example.com":     {"app.example.com", 443},
		"http://[2001:db8::1]:8080":   {"2001:db8::1", 8080},
		"unix:/run/app.sock":          {"/run/app.sock", 0},
	} {
		u, err := url.Parse(rawURL)
		if err != nil {
			t.Fatal(err)
		}
		if host, port, ok := AddressOf(u).Endpoint(); host != want.host || port != want.port || !ok {
			t.Errorf("%s is at %q and %d, %v; want %q and %d", rawURL, host, port, ok, want.host, want.port)
		}
	}
	if host, port, ok := (Address{}).Endpoint(); host != "" || port != 0 || ok {
		t.Errorf("no address is at %q and %d, %v", host, port, ok)
	}
}
