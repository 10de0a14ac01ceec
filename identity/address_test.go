package identity_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/identity"
)

// The proxies of the tables below: 10/8 and one IPv6 network are trusted.
var trusted = networks("10.0.0.0/8", "2001:db8:ffff::/48")

func TestWithoutTrustedProxiesThePeerIsTheClient(t *testing.T) {
	r := resolver(t, identity.Options{})
	for _, c := range []struct{ peer, want string }{
		{"203.0.113.7:1234", "203.0.113.7"},
		{"10.0.0.1:1234", "10.0.0.1"},
		{"[2001:db8::1]:1234", "2001:db8::1"},
		{"[::ffff:203.0.113.7]:1234", "203.0.113.7"}, // IPv4-mapped counts as IPv4
		{"[fe80::1%eth0]:1234", "fe80::1"},           // a zone is not part of the address
		{"203.0.113.7", "203.0.113.7"},
		{"2001:db8::1", "2001:db8::1"},
		{"@", "invalid IP"}, // a Unix socket
		{"", "invalid IP"},
		{"/run/weir.sock", "invalid IP"},
		{"example.com:80", "invalid IP"},
	} {
		req := request(c.peer, "X-Forwarded-For", "198.51.100.1", "Forwarded", "for=198.51.100.1", "X-Real-Ip", "198.51.100.1")
		if got := caller(r, req).Addr().String(); got != c.want {
			t.Errorf("peer %q: the client is %s, want %s", c.peer, got, c.want)
		}
	}
}

func TestAForwardedForChainIsWalkedFromTheRight(t *testing.T) {
	for _, c := range []struct {
		name, peer string
		lines      []string
		want       string
		chain      string
	}{
		{"one hop", "10.0.0.1:1", []string{"203.0.113.7"}, "203.0.113.7", "203.0.113.7, 10.0.0.1"},
		{"spoofed on the left", "10.0.0.1:1", []string{"198.51.100.1, 203.0.113.7"}, "203.0.113.7", "203.0.113.7, 10.0.0.1"},
		{"spoofed as a proxy", "10.0.0.1:1", []string{"10.9.9.9, 203.0.113.7"}, "203.0.113.7", "203.0.113.7, 10.0.0.1"},
		{"an untrusted peer", "203.0.113.9:1", []string{"198.51.100.1"}, "203.0.113.9", "203.0.113.9"},
		{"two hops", "10.0.0.1:1", []string{"203.0.113.7, 10.0.0.2"}, "203.0.113.7", "203.0.113.7, 10.0.0.2, 10.0.0.1"},
		{"lines joined in order", "10.0.0.1:1", []string{"198.51.100.1", "203.0.113.7", "10.0.0.2"}, "203.0.113.7", "203.0.113.7, 10.0.0.2, 10.0.0.1"},
		{"all trusted: the leftmost", "10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3", "10.0.0.3, 10.0.0.2, 10.0.0.1"},
		{"garbage stops at the last trusted hop", "10.0.0.1:1", []string{"203.0.113.7, junk, 10.0.0.2"}, "10.0.0.2", "10.0.0.2, 10.0.0.1"},
		{"garbage first", "10.0.0.1:1", []string{"203.0.113.7, junk"}, "10.0.0.1", "10.0.0.1"},
		{"garbage in an earlier line", "10.0.0.1:1", []string{"203.0.113.7, junk", "10.0.0.2"}, "10.0.0.2", "10.0.0.2, 10.0.0.1"},
		{"nothing between commas", "10.0.0.1:1", []string{"203.0.113.7,, 10.0.0.2"}, "10.0.0.2", "10.0.0.2, 10.0.0.1"},
		{"an empty line", "10.0.0.1:1", []string{""}, "10.0.0.1", "10.0.0.1"},
		{"no line", "10.0.0.1:1", nil, "10.0.0.1", "10.0.0.1"},
		{"a port", "10.0.0.1:1", []string{"203.0.113.7:4711"}, "203.0.113.7", "203.0.113.7, 10.0.0.1"},
		{"IPv6", "10.0.0.1:1", []string{"2001:db8::7"}, "2001:db8::7", "2001:db8::7, 10.0.0.1"},
		{"IPv6 in brackets", "10.0.0.1:1", []string{"[2001:db8::7]"}, "2001:db8::7", "2001:db8::7, 10.0.0.1"},
		{"IPv6 with a port", "10.0.0.1:1", []string{"[2001:db8::7]:4711"}, "2001:db8::7", "2001:db8::7, 10.0.0.1"},
		{"IPv6 with a zone", "10.0.0.1:1", []string{"fe80::1%eth0"}, "fe80::1", "fe80::1, 10.0.0.1"},
		{"a quote in a zone", "10.0.0.1:1", []string{`fe80::1%"`}, "10.0.0.1", "10.0.0.1"},
		{"IPv4-mapped", "10.0.0.1:1", []string{"::ffff:203.0.113.7"}, "203.0.113.7", "203.0.113.7, 10.0.0.1"},
		{"a mapped proxy", "[::ffff:10.0.0.1]:1", []string{"203.0.113.7"}, "203.0.113.7", "203.0.113.7, 10.0.0.1"},
		{"an IPv6 proxy", "[2001:db8:ffff::1]:1", []string{"203.0.113.7"}, "203.0.113.7", "203.0.113.7, 2001:db8:ffff::1"},
		{"blanks and tabs", "10.0.0.1:1", []string{"\t203.0.113.7 \t,  10.0.0.2  "}, "203.0.113.7", "203.0.113.7, 10.0.0.2, 10.0.0.1"},
		{"a leading zero", "10.0.0.1:1", []string{"010.0.0.2"}, "10.0.0.1", "10.0.0.1"},
		{"IPv4 in brackets", "10.0.0.1:1", []string{"[203.0.113.7]"}, "10.0.0.1", "10.0.0.1"},
		{"a port out of range", "10.0.0.1:1", []string{"203.0.113.7:65536"}, "10.0.0.1", "10.0.0.1"},
		{"a port without a number", "10.0.0.1:1", []string{"203.0.113.7:"}, "10.0.0.1", "10.0.0.1"},
		{"a bracket left open", "10.0.0.1:1", []string{"[2001:db8::7"}, "10.0.0.1", "10.0.0.1"},
		{"a host name", "10.0.0.1:1", []string{"localhost"}, "10.0.0.1", "10.0.0.1"},
		{"a number", "10.0.0.1:1", []string{"3405803783"}, "10.0.0.1", "10.0.0.1"},
		{"quotes do not belong here", "10.0.0.1:1", []string{`"203.0.113.7"`}, "10.0.0.1", "10.0.0.1"},
		{"over long", "10.0.0.1:1", []string{"203.0.113.7%" + strings.Repeat("z", 99)}, "10.0.0.1", "10.0.0.1"},
		{"a NUL", "10.0.0.1:1", []string{"203.0.113.7\x00"}, "10.0.0.1", "10.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			who := caller(resolver(t, identity.Options{TrustedProxies: trusted}), through(c.peer, "X-Forwarded-For", c.lines))
			if got := who.Addr().String(); got != c.want {
				t.Errorf("the client is %s, want %s", got, c.want)
			}
			if got := who.Chain(); got != c.chain {
				t.Errorf("the chain is %q, want %q", got, c.chain)
			}
		})
	}
}

func through(peer, header string, lines []string) *identity.HTTPRequest {
	req := request(peer)
	for _, l := range lines {
		req.Request.Header.Add(header, l)
	}
	return req
}

func TestAForwardedFieldIsParsedByRFC7239(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"plain", []string{"for=203.0.113.7"}, "203.0.113.7"},
		{"any case", []string{"FOR=203.0.113.7"}, "203.0.113.7"},
		{"other pairs", []string{`by=10.0.0.1;host="a,b;c";for=203.0.113.7;proto=https`}, "203.0.113.7"},
		{"blanks around", []string{" for=203.0.113.7 ; proto=https , for=10.0.0.2 "}, "203.0.113.7"},
		{"quoted IPv6", []string{`for="[2001:db8::7]"`}, "2001:db8::7"},
		{"quoted IPv6 with a port", []string{`for="[2001:db8::7]:4711"`}, "2001:db8::7"},
		{"quoted IPv4 with a port", []string{`for="203.0.113.7:4711"`}, "203.0.113.7"},
		{"escapes", []string{`for="\2\0\3.0.113.7"`}, "203.0.113.7"},
		{"spoofed on the left", []string{"for=198.51.100.1, for=203.0.113.7"}, "203.0.113.7"},
		{"two hops", []string{"for=203.0.113.7, for=10.0.0.2"}, "203.0.113.7"},
		{"lines joined in order", []string{"for=198.51.100.1", "for=203.0.113.7", "for=10.0.0.2"}, "203.0.113.7"},
		{"all trusted", []string{"for=10.0.0.3, for=10.0.0.2"}, "10.0.0.3"},
		{"a comma in quotes is no end", []string{`for=198.51.100.1, for=203.0.113.7;host="x, for=10.0.0.9"`}, "203.0.113.7"},
		{"an escaped quote is no end", []string{`for=203.0.113.7;host="\", for=10.0.0.9;x=\""`}, "203.0.113.7"},
		{"an escaped backslash is no escape", []string{`host="x\\";for=203.0.113.7`}, "203.0.113.7"},
		{"a quote left open on the left swallows nothing", []string{`for="198.51.100.1, for=203.0.113.7`}, "203.0.113.7"},
		{"nor a quoted one", []string{`for="198.51.100.1, for="[2001:db8::7]"`}, "2001:db8::7"},
		{"nor an escape", []string{`for="198.51.100.1\, for="[2001:db8::7]"`}, "2001:db8::7"},
		{"obfuscated", []string{"for=203.0.113.7, for=_hidden"}, "10.0.0.1"},
		{"unknown", []string{"for=203.0.113.7, for=unknown"}, "10.0.0.1"},
		{"an obfuscated port", []string{`for="203.0.113.7:_port"`}, "10.0.0.1"},
		{"twice in one element", []string{"for=203.0.113.7;for=198.51.100.1"}, "10.0.0.1"},
		{"without for", []string{"for=203.0.113.7, proto=https"}, "10.0.0.1"},
		{"an empty element", []string{"for=203.0.113.7,"}, "10.0.0.1"},
		{"a quote left open", []string{`for="203.0.113.7`}, "10.0.0.1"},
		{"behind a closing quote", []string{`for="203.0.113.7"x`}, "10.0.0.1"},
		{"no equals sign", []string{"203.0.113.7"}, "10.0.0.1"},
		{"a blank around the equals sign", []string{"for = 203.0.113.7"}, "10.0.0.1"},
		{"a quote inside a token", []string{`for=203.0."113.7"`}, "10.0.0.1"},
		{"garbage behind a trusted hop", []string{`for=203.0.113.7, =;, for=10.0.0.2`}, "10.0.0.2"},
		{"a plain list in another field", nil, "10.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := resolver(t, identity.Options{TrustedProxies: trusted, ClientIPHeader: "forwarded"})
			req := through("10.0.0.1:1", "Forwarded", c.lines)
			// Another field than the configured one.
			req.Request.Header.Set("X-Forwarded-For", "198.51.100.9")
			if got := caller(r, req).Addr().String(); got != c.want {
				t.Errorf("the client is %s, want %s", got, c.want)
			}
		})
	}
}

// Exactly one header is read (D12).
func TestOnlyTheConfiguredFieldIsRead(t *testing.T) {
	for header, want := range map[string]string{
		"": "198.51.100.1", "x-forwarded-for": "198.51.100.1", "FORWARDED": "198.51.100.2", "X-Real-IP": "198.51.100.3", "X-Real-Ip": "198.51.100.3",
	} {
		t.Run(header, func(t *testing.T) {
			r := resolver(t, identity.Options{TrustedProxies: trusted, ClientIPHeader: header})
			req := request("10.0.0.1:1", "X-Forwarded-For", "198.51.100.1", "Forwarded", "for=198.51.100.2", "X-Real-Ip", "198.51.100.3")
			if got := caller(r, req).Addr().String(); got != want {
				t.Errorf("client IP header %q: the client is %s, want %s", header, got, want)
			}
		})
	}
}

// IPv4-mapped IPv6 counts as IPv4 (D12).
func TestAProxyNetworkMayBeWrittenAsMapped(t *testing.T) {
	r := resolver(t, identity.Options{TrustedProxies: networks("::ffff:10.0.0.0/104")})
	if got := caller(r, request("10.0.0.1:1", "X-Forwarded-For", "203.0.113.7")).Addr().String(); got != "203.0.113.7" {
		t.Errorf("the client is %s", got)
	}
	if got := caller(r, request("11.0.0.1:1", "X-Forwarded-For", "203.0.113.7")).Addr().String(); got != "11.0.0.1" {
		t.Errorf("another network is trusted: the client is %s", got)
	}
}

func TestAnAddressIsKeyedWholeOrByItsNetwork(t *testing.T) {
	for _, c := range []struct {
		bits int
		peer string
		want string
	}{
		{0, "203.0.113.7:1", "\xcb\x00\x71\x07"},
		{0, "[::ffff:203.0.113.7]:1", "\xcb\x00\x71\x07"},
		{0, "[2001:db8:1:2:3:4:5:6]:1", "\x20\x01\x0d\xb8\x00\x01\x00\x02" + strings.Repeat("\x00", 8)},
		{48, "[2001:db8:1:2:3:4:5:6]:1", "\x20\x01\x0d\xb8\x00\x01" + strings.Repeat("\x00", 10)},
		{128, "[2001:db8::1]:1", "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01"},
	} {
		r := resolver(t, identity.Options{IPv6Prefix: c.bits})
		if got, ok := key(caller(r, request(c.peer)), identity.IP); !ok || got != c.want {
			t.Errorf("%s by /%d: %x %v, want %x", c.peer, c.bits, got, ok, c.want)
		}
	}
	if got, ok := key(caller(resolver(t, identity.Options{}), request("@")), identity.IP); ok || got != "" {
		t.Errorf("a unix socket has the address %x", got)
	}
	if got := caller(resolver(t, identity.Options{}), request("@")).Chain(); got != "" {
		t.Errorf("a unix socket has the chain %q", got)
	}
}

func TestAnUntrustedPeersFieldsNeverChangeTheAddress(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := resolver(t, identity.Options{TrustedProxies: trusted, ClientIPHeader: aHeader(rt)})
		peer := fmt.Sprintf("203.0.113.%d:%d", rapid.IntRange(0, 255).Draw(rt, "host"), rapid.IntRange(0, 65535).Draw(rt, "port"))
		bare := caller(r, request(peer)).Addr()
		req := request(peer)
		for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip"} {
			req.Request.Header[name] = rapid.SliceOfN(spoof(), 0, 4).Draw(rt, name)
		}
		if got := caller(r, req).Addr(); got != bare {
			rt.Fatalf("%v changes the address from %v to %v", req.Request.Header, got, bare)
		}
	})
}

// A client's own entries are to the left of those that proxies add (D12).
func TestEntriesAddedOnTheLeftNeverChangeTheClient(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		header := aHeader(rt)
		r := resolver(t, identity.Options{TrustedProxies: trusted, ClientIPHeader: header})
		form := "%s"
		if header == "Forwarded" {
			form = rapid.SampledFrom([]string{"for=%s", `for="%s"`, `proto=https;for="%s:80"`, `for=%s;host="a\"b"`}).Draw(rt, "form")
		}
		client := fmt.Sprintf("203.0.113.%d", rapid.IntRange(0, 255).Draw(rt, "client"))
		line := fmt.Sprintf(form, client)
		for i := range rapid.IntRange(0, 3).Draw(rt, "proxies") {
			line += ", " + fmt.Sprintf(form, fmt.Sprintf("10.0.0.%d", i+2))
		}
		lines := append(rapid.SliceOfN(spoof(), 0, 3).Draw(rt, "lines above"), spoof().Draw(rt, "spoofed")+", "+line)
		if got := caller(r, through("10.0.0.1:1", header, lines)).Addr(); got != netip.MustParseAddr(client) {
			rt.Fatalf("%q: the client is %v, want %s", lines, got, client)
		}
	})
}

func aHeader(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"X-Forwarded-For", "Forwarded"}).Draw(rt, "header")
}

// spoof generates an attacker's text: pieces of the grammar in any order, or
// anything.
func spoof() *rapid.Generator[string] {
	piece := rapid.SampledFrom([]string{"10.0.0.9", "198.51.100.1", "for=", ",", ";", `"`, `\`, "[", "]", ":", " ", "_x", "unknown", "host=", "::1", "="})
	return rapid.OneOf(rapid.Map(rapid.SliceOf(piece), func(p []string) string { return strings.Join(p, "") }), rapid.String())
}
