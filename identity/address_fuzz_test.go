package identity_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlimit/weir/identity"
)

func FuzzAForwardedForChainYieldsThePeerOrAnAddressInIt(f *testing.F) {
	for _, s := range []string{"203.0.113.7", "10.0.0.2, 203.0.113.7:80", "[::1]:80,,", "fe80::1%x", "::ffff:10.0.0.1", "[", "]:", ",", "1.2.3.4:", `::%"`, "fe80::1%a,b"} {
		f.Add(s, "10.0.0.3")
	}
	f.Fuzz(func(t *testing.T, first, second string) { mustStandInField(t, "X-Forwarded-For", first, second) })
}

func FuzzAForwardedFieldYieldsThePeerOrAnAddressInIt(f *testing.F) {
	for _, s := range []string{"for=203.0.113.7", `for="[2001:db8::7]:80";proto=https, for=10.0.0.2`, `for="\1\0.0.0.2"`, `"`, `for="`, `for="\`, `for=;,`, `\"=`} {
		f.Add(s, "for=10.0.0.3")
	}
	f.Fuzz(func(t *testing.T, first, second string) { mustStandInField(t, "Forwarded", first, second) })
}

func mustStandInField(t *testing.T, header string, lines ...string) {
	r := resolver(t, identity.Options{TrustedProxies: networks("10.0.0.0/8"), ClientIPHeader: header})
	req := request("10.0.0.1:1")
	req.Request.Header[header] = lines
	who := caller(r, req)
	got := who.Addr()
	if got.Is4In6() || got.Zone() != "" || !got.IsValid() {
		t.Fatalf("%q: %v is not in its one form", lines, got)
	}
	if chain := who.Chain(); !strings.HasPrefix(chain, got.String()) || !strings.HasSuffix(chain, "10.0.0.1") {
		t.Fatalf("%q: the chain %q does not lead from %v to the peer", lines, chain, got)
	}
	if got == netip.MustParseAddr("10.0.0.1") {
		return
	}
	for _, line := range lines {
		for _, word := range strings.FieldsFunc(strings.ReplaceAll(line, `\`, ""), func(r rune) bool { return strings.ContainsRune(" \t,;=\"", r) }) {
			a, err := netip.ParseAddr(strings.Trim(word, "[]"))
			if err != nil {
				ap, _ := netip.ParseAddrPort(word)
				a = ap.Addr()
			}
			if a.Unmap().WithZone("") == got {
				return
			}
		}
	}
	t.Fatalf("%q: %v does not occur in it", lines, got)
}
