package edge

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/gateway"
)

func TestWhichConnectionsEndAtThisServer(t *testing.T) {
	own := func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("fe80::7")}
	}
	for _, c := range []struct {
		bound, ends, passes string // separated by blanks
	}{
		{"127.0.0.1", "127.0.0.1 ::ffff:127.0.0.1 0.0.0.0 ::", "127.0.0.2 192.0.2.7 ::1 198.51.100.1"},
		{"::1", "::1 ::", "127.0.0.1 0.0.0.0 2001:db8::7"},
		{"192.0.2.7", "192.0.2.7", "127.0.0.1 0.0.0.0 :: 192.0.2.8"},
		{"0.0.0.0", "127.0.0.1 127.8.9.1 192.0.2.7 0.0.0.0 :: ::ffff:192.0.2.7", "192.0.2.8 198.51.100.1 ::1 2001:db8::7"},
		{"::", "127.0.0.1 127.8.9.1 192.0.2.7 0.0.0.0 :: ::1 2001:db8::7 fe80::7%eth0", "192.0.2.8 198.51.100.1 2001:db8::8 fe80::8%eth0"},
		{"fe80::7%eth0", "fe80::7%eth0 fe80::7", "fe80::8%eth0 ::1 ::"},
	} {
		for want, all := range map[bool]string{true: c.ends, false: c.passes} {
			for _, to := range strings.Fields(all) {
				if got := reaches(netip.MustParseAddr(to), netip.MustParseAddr(c.bound), own); got != want {
					t.Errorf("to %s, where %s is listened on: ends there %v, want %v", to, c.bound, got, want)
				}
			}
		}
	}
}

// listenAt listens on a free port of an address, and returns that port.
func listenAt(t *testing.T, address string) (l net.Listener, port string) {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return l, port
}

func TestTheServerItselfIsRejectedAsUpstream(t *testing.T) {
	_, other := listenAt(t, "127.0.0.1")
	for bound, cases := range map[string]struct{ refused, taken []string }{
		"127.0.0.1": {
			[]string{"127.0.0.1:PORT", "localhost:PORT", "LOCALHOST:0PORT", "0.0.0.0:PORT", "[::ffff:127.0.0.1]:PORT/base"},
			[]string{"127.0.0.2:PORT", "127.0.0.1:" + other, "198.51.100.1:PORT", "127.0.0.1", "nowhere.invalid:PORT"},
		},
		"": {
			append([]string{"127.0.0.1:PORT", "127.0.0.2:PORT", "localhost:PORT", "[::]:PORT"}, ownHosts(t)...),
			[]string{"127.0.0.1:" + other, "198.51.100.1:PORT", "[2001:db8::1]:PORT", "nowhere.invalid:PORT"},
		},
	} {
		l, port := listenAt(t, bound)
		for wanted, hosts := range map[bool][]string{true: cases.refused, false: cases.taken} {
			for _, host := range hosts {
				upstream, err := url.Parse("http://" + strings.ReplaceAll(host, "PORT", port))
				if err != nil {
					t.Fatal(err)
				}
				self := &ownListeners{sites: gateway.To(upstream)}
				err = self.claimListener(t.Context(), l, "--listen")
				if (err != nil) != wanted {
					t.Errorf("upstream %s, listening on %v: %v, want it refused: %v", host, l.Addr(), err, wanted)
				}
				if wanted && err != nil && !strings.Contains(err.Error(), " is not a backend: this server itself listens on "+l.Addr().String()+" (--listen)") {
					t.Errorf("upstream %s: the error is %q", host, err)
				}
			}
		}
	}
}

// ownHosts are this machine's addresses, as hosts of a URL without a port.
func ownHosts(t *testing.T) (hosts []string) {
	t.Helper()
	own := interfaceAddresses()
	if len(own) == 0 {
		t.Fatal("this machine has no address, not even a loopback's")
	}
	for _, a := range own {
		if !a.IsLinkLocalUnicast() { // these need a zone
			hosts = append(hosts, net.JoinHostPort(a.String(), "PORT"))
		}
	}
	return hosts
}

// While the server runs, a name may start to resolve to this machine.
func TestARunningServerDoesNotConnectToItself(t *testing.T) {
	public, port := listenAt(t, "127.0.0.1")
	operators, adminPort := listenAt(t, "127.0.0.1")
	self := new(ownListeners)
	for by, l := range map[string]net.Listener{"--listen": public, byManager: operators} {
		if err := self.claimListener(t.Context(), l, by); err != nil {
			t.Fatal(err)
		}
	}
	for to, why := range map[string]string{
		"127.0.0.1:" + port:      "--listen",
		"127.0.0.1:" + adminPort: byManager,
		"127.0.0.2:" + port:      "",
		"127.0.0.1:1":            "",
	} {
		if err := self.checkSelfProxy(netip.MustParseAddrPort(to)); (err != nil) != (why != "") || err != nil && !strings.Contains(err.Error(), "("+why+")") {
			t.Errorf("%s: %v, want %q", to, err, why)
		}
	}
}

// What is known without the network is reported without it, and nothing else is.
func TestAnUpstreamIsComparedWithListenersThatAreNotOpen(t *testing.T) {
	for listen, cases := range map[string]struct{ refused, taken []string }{
		"127.0.0.1:8080": {
			[]string{"http://127.0.0.1:8080", "http://localhost:8080/base", "https://LOCALHOST:08080", "http://[::ffff:127.0.0.1]:8080", "http://0.0.0.0:8080"},
			[]string{"http://127.0.0.1:8081", "http://127.0.0.2:8080", "http://[::1]:8080", "http://nowhere.invalid:8080", "http://127.0.0.1", "unix:/run/app.sock"},
		},
		":80":                 {[]string{"http://127.0.0.1", "http://[::1]", "http://localhost"}, []string{"https://localhost", "http://192.0.2.7", "http://nowhere.invalid"}},
		"localhost:8080":      {[]string{"http://127.0.0.1:8080", "http://localhost:8080"}, []string{"http://192.0.2.7:8080"}},
		"127.0.0.1:0":         {nil, []string{"http://127.0.0.1:8080"}},
		"":                    {nil, []string{"http://127.0.0.1:8080", "unix:/run/app.sock"}},
		"unix:/run/weir.sock": {[]string{"unix:/run/weir.sock", "unix:/run/../run/weir.sock"}, []string{"unix:/run/app.sock", "http://127.0.0.1:8080"}},
	} {
		for want, all := range map[bool][]string{true: cases.refused, false: cases.taken} {
			for _, text := range all {
				u, err := url.Parse(text)
				if path, ok := strings.CutPrefix(text, "unix:"); ok {
					u, err = &url.URL{Scheme: "unix", Path: path, OmitHost: true}, nil
				}
				if err != nil {
					t.Fatal(err)
				}
				sites := []gateway.Site{{Upstreams: []*url.URL{u}}}
				if err := CheckSelfProxy(sites, Listener{"--admin", ""}, Listener{"--listen", listen}); (err != nil) != want {
					t.Errorf("listening on %q, upstream %s: %v, want an error: %v", listen, text, err, want)
				}
			}
		}
	}
}
