package main

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"testing"
)

// A URL is verified without --yes only if each of its addresses is this machine's.
func TestLoopbackTargetsNeedNoConsent(t *testing.T) {
	for _, c := range []struct {
		url  string
		want bool
	}{
		{"http://127.0.0.1:8080", true},
		{"http://127.1.2.3", true},
		{"http://[::1]:8080", true},
		{"http://[::ffff:127.0.0.1]", true},
		{"http://localhost", true},
		{"http://0.0.0.0:8080", false}, // its meaning depends on the system
		{"http://192.0.2.1", false},
		{"http://[::ffff:192.0.2.1]", false},
		{"http://[fe80::1%25lo]", false},
		{"http://10.0.0.1", false},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		host, err := resolve(t.Context(), u)
		if err != nil || host.loopback() != c.want {
			t.Errorf("%s: %+v, %v; want %v", c.url, host, err, c.want)
		}
	}
	mixed := pinned{addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1")}}
	if mixed.loopback() || (&pinned{}).loopback() {
		t.Error("a name with an address elsewhere, or with none, is taken for this machine")
	}
}

// Connections go to the addresses that were resolved at first, even if the name now
// resolves to others. An address that does not answer is skipped.
func TestConnectionsArePinned(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	host := pinned{name: "api.example.com", port: port, addrs: []netip.Addr{netip.MustParseAddr("127.0.0.9"), netip.MustParseAddr("127.0.0.1")}}
	conn, err := host.dial(t.Context(), "tcp", "192.0.2.1:1")
	if err != nil || conn.RemoteAddr().String() != listener.Addr().String() {
		t.Fatalf("%v, %v", conn, err)
	}
	conn.Close()
	host.addrs = host.addrs[:1]
	if conn, err := host.dial(t.Context(), "tcp", listener.Addr().String()); err == nil {
		t.Errorf("connected to %v", conn.RemoteAddr())
	}
}

func TestVerifyFlagsThatAreLists(t *testing.T) {
	var tokens secrets
	for _, value := range []string{" a b\n", "c,b"} {
		if err := tokens.Set(value); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(tokens, secrets{"a", "b", "c"}) || tokens.String() != "" {
		t.Errorf("%q, shown as %q", []string(tokens), tokens.String())
	}
	var header fields
	if err := header.Set("X-A: 1\nx-a:2\r\nX-B: c, d"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(header["X-A"], []string{"1", "2"}) || !slices.Equal(header["X-B"], []string{"c, d"}) {
		t.Errorf("%v", header)
	}
	for _, value := range []string{"", "X-A", "X A: 1", "X-A: \x00", ": 1", "content-length: 1"} {
		if err := header.Set(value); err == nil {
			t.Errorf("%q is taken", value)
		}
	}
}
