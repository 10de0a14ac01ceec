package gateway

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each name has one budget, over HTTP/1.1 and HTTP/2, and a renewed certificate has the budget of
// the one before it.
func TestEachCertificateHasOneBudget(t *testing.T) {
	root := newIssuer(t, "root")
	c := openCertified(t, byCert(t, "4 per hour by cert", "cert"), false, nil, root)
	for _, name := range []string{"a.example.com", "b.example.com"} {
		clients := []*http.Client{
			c.client(c.tls(root.issue(name, nil)), false),
			c.client(c.tls(root.issue(name, nil)), true),
			c.client(c.tls(root.under("between").under("below").issue(strings.ToUpper(name), nil)), false),
		}
		for i := range 6 {
			res, body := c.get(clients[i%len(clients)])
			want := http.StatusOK
			if i >= 4 {
				want = http.StatusTooManyRequests
			}
			if left := fmt.Sprint(max(3-i, 0)); res.StatusCode != want || res.Header.Get("X-RateLimit-Remaining") != left {
				t.Errorf("%s, request %d: %d %q, remaining %q; want %d, %s", name, i+1, res.StatusCode, body, res.Header.Get("X-RateLimit-Remaining"), want, left)
			}
		}
	}
}

// If certificates are optional, a caller without one is counted by its address, and answered 401 by
// a limiter that requires one.
func TestACallerWithoutACertificateIsCountedByItsAddress(t *testing.T) {
	root := newIssuer(t, "root")
	for requires, want := range map[string]int{"": http.StatusOK, "cert": http.StatusUnauthorized} {
		c := openCertified(t, byCert(t, "2 per hour by cert", requires), true, nil, root)
		for _, http2 := range []bool{false, true} {
			res, body := c.get(c.client(c.tls(), http2))
			if res.StatusCode != want || (want == 401) != strings.Contains(body, "This request needs a client certificate.") ||
				(want == 401) != (res.Header.Get("WWW-Authenticate") == `ClientCertificate realm="cert"`) {
				t.Errorf("requires %q: %d %v %q", requires, res.StatusCode, res.Header, body)
			}
		}
		if res, body := c.get(c.client(c.tls(), false)); res.StatusCode != http.StatusTooManyRequests {
			t.Errorf("requires %q, its address is spent: %d %q", requires, res.StatusCode, body)
		}
		if res, body := c.get(c.client(c.tls(root.issue("a.example.com", nil)), false)); res.StatusCode != http.StatusOK {
			t.Errorf("requires %q, with a certificate: %d %q", requires, res.StatusCode, body)
		}
	}
}

func TestACertificateThatDoesNotVerifyGetsNoConnection(t *testing.T) {
	root, other := newIssuer(t, "root"), newIssuer(t, "root")
	valid := func(from, to time.Duration) tls.Certificate {
		return root.issue("a.example.com", func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(to) })
	}
	alone := root.under("between").issue("a.example.com", nil)
	alone.Certificate = alone.Certificate[:1]
	cases := map[string]struct {
		shown tls.Certificate
		alert string
	}{
		"expired":       {valid(-2*time.Hour, -time.Hour), "expired certificate"},
		"not valid yet": {valid(time.Hour, 2*time.Hour), "expired certificate"},
		"for servers": {root.issue("a.example.com", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), "bad certificate"},
		"of another authority":    {other.issue("a.example.com", nil), "unknown certificate authority"},
		"without what is between": {alone, "unknown certificate authority"},
	}
	for _, optional := range []bool{false, true} {
		c := openCertified(t, byCert(t, "100 per hour by cert", ""), optional, nil, root)
		for version, alert := range map[uint16]string{tls.VersionTLS12: "handshake failure", tls.VersionTLS13: "certificate required"} {
			for name, test := range cases {
				config := c.tls(test.shown)
				config.MinVersion, config.MaxVersion = version, version
				if got := c.refusal(config); !strings.Contains(got, test.alert) {
					t.Errorf("%s, optional %t, TLS %#x: %s; want the alert %q", name, optional, version, got, test.alert)
				}
			}
			// many strangers make one line
			eventually(t, "the log has a reason", func() bool { return strings.Contains(c.log.String(), "does not verify") })
			if log := c.log.String(); strings.Count(log, "does not verify") != 1 || !strings.Contains(log, "peer=127.0.0.1:") || !strings.Contains(log, `error="x509: certificate `) {
				t.Errorf("the log has\n%s", log)
			}
			config := c.tls()
			config.MinVersion, config.MaxVersion = version, version
			if !optional {
				if got := c.refusal(config); !strings.Contains(got, alert) {
					t.Errorf("none, TLS %#x: %s; want the alert %q", version, got, alert)
				}
			} else if _, line := c.ask(config); line != "HTTP/1.1 200 OK" {
				t.Errorf("none, optional, TLS %#x: %q", version, line)
			}
		}
	}
}

// A resumed session has the certificate that it began with, as long as its authority is in the
// file.
func TestAResumedSessionKeepsItsCertificateUntilItsAuthorityIsRemoved(t *testing.T) {
	old, next := newIssuer(t, "old"), newIssuer(t, "new")
	for _, optional := range []bool{false, true} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			c := openCertified(t, byCert(t, "2 per hour by cert", "cert"), optional, nil, old)
			config := c.tls(old.issue("a.example.com", nil))
			config.MinVersion, config.MaxVersion = version, version
			config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			for i, want := range []string{"HTTP/1.1 200 OK", "HTTP/1.1 200 OK", "HTTP/1.1 429 Too Many Requests"} {
				if resumed, line := c.ask(config); line != want || resumed != (i > 0) {
					t.Errorf("TLS %#x, connection %d: %q, resumed %t; want %q", version, i+1, line, resumed, want)
				}
			}
			c.write(t, pemOf(next))
			c.gateway.clients.refresh()
			if got := c.refusal(config); !strings.Contains(got, "unknown certificate authority") {
				t.Errorf("TLS %#x, after its authority is removed: %s", version, got)
			}
			if _, line := c.ask(c.tls(next.issue("a.example.com", nil))); line != "HTTP/1.1 429 Too Many Requests" {
				t.Errorf("TLS %#x, one of the new authority with the same name: %q", version, line)
			}
		}
	}
}

// A kept connection ends with the authority of its certificate, and charges nothing to its name.
func TestAKeptConnectionEndsWhenItsAuthorityIsRemoved(t *testing.T) {
	old, next := newIssuer(t, "old"), newIssuer(t, "new")
	for _, http2 := range []bool{false, true} {
		c := openCertified(t, byCert(t, "2 per hour by cert", ""), false, nil, old)
		client := c.client(c.tls(old.issue("a.example.com", nil)), http2)
		if res, body := c.get(client); res.StatusCode != http.StatusOK {
			t.Fatalf("%d %q", res.StatusCode, body)
		}
		c.write(t, pemOf(old, next))
		c.gateway.clients.refresh()
		renewed := c.client(c.tls(next.issue("a.example.com", nil)), http2)
		c.write(t, pemOf(next))
		c.gateway.clients.refresh()
		res, err := client.Get("https://" + c.addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		body := text(t, res)
		res.Body.Close()
		if res.StatusCode != http.StatusMisdirectedRequest || !strings.Contains(body, "misdirected_request") || !strings.Contains(body, "Connect again") {
			t.Errorf("HTTP/2 %t: %d %q", http2, res.StatusCode, body)
		}
		if !http2 && !res.Close {
			t.Error("the connection stays open")
		}
		if res, err := client.Get("https://" + c.addr + "/"); err == nil {
			t.Errorf("HTTP/2 %t: the client is served on a new connection: %d", http2, res.StatusCode)
		}
		if res, body := c.get(renewed); res.StatusCode != http.StatusOK || res.Header.Get("X-RateLimit-Remaining") != "0" {
			t.Errorf("HTTP/2 %t, a certificate of the new authority: %d %v %q", http2, res.StatusCode, res.Header, body)
		}
	}
}

func TestAChainHoldsUntilOneOfItsCertificatesExpires(t *testing.T) {
	root := newIssuer(t, "root")
	between := root.under("between")
	file := filepath.Join(t.TempDir(), "clients.pem")
	if err := os.WriteFile(file, pemOf(root), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := loadClientAuthorities(ClientTLS{CAFile: file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	issued := between.issue("a.example.com", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), between.cert.NotAfter.Add(time.Hour)
	})
	leaf, err := x509.ParseCertificate(issued.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	good := []*x509.Certificate{leaf, between.cert, root.cert}
	// That of between is a second later if the clock's second ended meanwhile.
	ends := root.cert.NotAfter
	for _, test := range []struct {
		name   string
		chains [][]*x509.Certificate
		at     time.Time
		want   bool
	}{
		{"valid", [][]*x509.Certificate{good}, ends, true},
		{"an authority has expired", [][]*x509.Certificate{good}, ends.Add(time.Second), false},
		{"another root", [][]*x509.Certificate{{leaf, between.cert}}, ends, false},
		{"one of two", [][]*x509.Certificate{{leaf, between.cert}, good}, ends, true},
		{"none", nil, ends, false},
	} {
		if got := a.hold(test.chains, test.at); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}

func TestABadFileOfAuthoritiesLeavesThePreviousOnesInForce(t *testing.T) {
	root, next := newIssuer(t, "root"), newIssuer(t, "next")
	whole := pemOf(next)
	key, err := x509.MarshalPKCS8PrivateKey(next.key)
	if err != nil {
		t.Fatal(err)
	}
	damaged := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: next.cert.Raw[:len(next.cert.Raw)-1]})
	c := openCertified(t, byCert(t, "100 per hour by cert", "cert"), false, nil, root)
	client := c.tls(root.issue("a.example.com", nil))
	for why, content := range map[string][]byte{
		"there is no certificate in it":        []byte("nothing\n"),
		"block 2 of it is damaged or cut off":  append(bytes.Clone(whole), whole[:len(whole)-30]...),
		"block 1 of it is a PRIVATE KEY":       append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), whole...),
		"certificate 2 of it: x509: malformed": append(bytes.Clone(whole), damaged...),
		"no such file or directory":            nil,
	} {
		c.write(t, content)
		if content == nil {
			if err := os.Remove(c.file); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			c.gateway.clients.refresh()
		}
		if n := strings.Count(c.log.String(), why); n != 1 {
			t.Errorf("%q is logged %d times:\n%s", why, n, c.log)
		}
		if _, line := c.ask(client); line != "HTTP/1.1 200 OK" {
			t.Errorf("%s: %q", why, line)
		}
		if _, err := loadClientAuthorities(ClientTLS{CAFile: c.file}, nil); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("at the start: %v; want %s", err, why)
		}
	}
	c.write(t, append([]byte("a comment\n"), pemOf(next)...))
	eventually(t, "the changed file is read", func() bool { return strings.Contains(c.log.String(), "were reloaded") })
	if _, line := c.ask(c.tls(next.issue("b.example.com", nil))); line != "HTTP/1.1 200 OK" {
		t.Errorf("after the change: %q", line)
	}
}

// Operators have listeners of the same certificates, and are not asked for theirs.
func TestOnlyThePublicListenerAsksForCertificates(t *testing.T) {
	c := openCertified(t, byCert(t, "100 per hour by cert", ""), false, nil, newIssuer(t, "root"))
	if config := c.gateway.TLSConfig(); config.ClientAuth != tls.NoClientCert || config.ClientCAs != nil || config.GetConfigForClient != nil {
		t.Errorf("the configuration of other listeners asks for certificates: %+v", config)
	}
	plain, _ := url.Parse("http://127.0.0.1:1")
	o := c.gateway.options
	if _, err := New(Options{Decider: o.Decider, Identity: o.Identity, Sites: To(plain), Clients: o.Clients}); err == nil || !strings.Contains(err.Error(), "over TLS alone") {
		t.Errorf("without TLS: %v", err)
	}
}

// A connection with a configuration of its own, such as one that proves that a name is the
// server's, is not asked.
func TestAConnectionWithAConfigurationOfItsOwnIsNotAsked(t *testing.T) {
	c := openCertified(t, byCert(t, "100 per hour by cert", ""), false, nil, newIssuer(t, "root"))
	special := new(tls.Config)
	config := &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.ServerName == "special.example.com" {
			return special, nil
		}
		return nil, nil
	}}
	c.gateway.clients.ask(config)
	for name, want := range map[string]tls.ClientAuthType{"special.example.com": tls.NoClientCert, "a.example.com": tls.RequireAndVerifyClientCert} {
		got, err := config.GetConfigForClient(&tls.ClientHelloInfo{ServerName: name})
		if err != nil || got.ClientAuth != want {
			t.Errorf("%s: %v, %v; want %v", name, got.ClientAuth, err, want)
		}
	}
}

// An upstream gets the certificate that was verified if it is told so, and never one that the
// caller has written into a field itself (RFC 9440).
func TestAnUpstreamGetsTheVerifiedCertificateAlone(t *testing.T) {
	root := newIssuer(t, "root")
	between := root.under("between")
	below := between.under("below")
	shown := below.issue("a.example.com", nil)
	bytesOf := func(der []byte) string { return ":" + base64.StdEncoding.EncodeToString(der) + ":" }
	both := "Client-Cert: " + bytesOf(shown.Certificate[0]) + "\n" +
		"Client-Cert-Chain: " + bytesOf(below.cert.Raw) + ", " + bytesOf(between.cert.Raw) + "\n"
	for _, test := range []struct {
		name      string
		forwarded []string
		proxies   bool
		shown     []tls.Certificate
		want      string
	}{
		{"both", []string{"x-forwarded-for", "client-cert", "client-cert-chain"}, false, []tls.Certificate{shown}, both + "X-Ssl: own\n"},
		{"no chain to send", []string{"client-cert", "client-cert-chain"}, false, []tls.Certificate{root.issue("b.example.com", nil)}, ""},
		{"by default", nil, false, []tls.Certificate{shown}, "X-Ssl: own\n"},
		{"none shown", []string{"client-cert", "client-cert-chain"}, false, nil, "X-Ssl: own\n"},
		{"a trusted proxy's", []string{"client-cert", "client-cert-chain"}, true, []tls.Certificate{shown}, "X-Ssl: own\n"},
	} {
		if test.want == "" {
			test.want = "Client-Cert: " + bytesOf(test.shown[0].Certificate[0]) + "\nX-Ssl: own\n"
		}
		c := openCertified(t, byCert(t, "100 per hour by cert", ""), true, func(o *Options) {
			o.Forwarded = test.forwarded
			if test.proxies {
				o.TrustedProxies = loopback
			}
		}, root)
		for _, http2 := range []bool{false, true} {
			client := c.client(c.tls(test.shown...), http2)
			req, err := http.NewRequest(http.MethodGet, "https://"+c.addr+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range certificateFields {
				req.Header.Set(name, "own")
			}
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got := text(t, res)
			res.Body.Close()
			if got != test.want {
				t.Errorf("%s, HTTP/2 %t: the upstream gets\n%s\nwant\n%s", test.name, http2, got, test.want)
			}
		}
	}
	if _, err := New(Options{Decider: testDecider(t, testPolicy(t)), Identity: open(t, new(recorder), nil).gateway.options.Identity, Backend: new(recorder), Forwarded: []string{"client-cert-chain"}}); err == nil || !strings.Contains(err.Error(), `needs "client-cert"`) {
		t.Errorf("a chain without its certificate: %v", err)
	}
}

// The certificate of a trusted proxy's connection is the proxy's, so its clients have none.
func TestTheCertificateOfAProxyIsNotItsClients(t *testing.T) {
	root := newIssuer(t, "root")
	c := openCertified(t, byCert(t, "100 per hour by cert", "cert"), false, func(o *Options) { o.TrustedProxies = loopback }, root)
	res, body := c.get(c.client(c.tls(root.issue("proxy.example.com", nil)), false))
	if res.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "trusted proxy") {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}
