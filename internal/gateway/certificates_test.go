package gateway

import (
	"bufio"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/logtest"
)

// An issued is a self-signed certificate for a test. The zero value has a P-256 key and an hour.
type issued struct {
	hosts    []string
	rsa      bool
	from, to time.Time
	usage    []x509.ExtKeyUsage
}

// write makes the certificate and its key in dir, in files called name.
func (i issued) write(t testing.TB, dir, name string) (KeyPair, *x509.Certificate) {
	t.Helper()
	var key crypto.Signer
	var err error
	if i.rsa {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	if i.to.IsZero() {
		i.from, i.to = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: i.from, NotAfter: i.to, IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: i.usage,
	}
	for _, host := range i.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pair := KeyPair{filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")}
	for file, block := range map[string]*pem.Block{pair.CertFile: {Type: "CERTIFICATE", Bytes: der}, pair.KeyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return pair, cert
}

// certificatesFor writes one certificate for each list of hosts.
func certificatesFor(t testing.TB, dir string, hosts ...string) (all []KeyPair) {
	t.Helper()
	for i, list := range hosts {
		pair, _ := issued{hosts: strings.Fields(list)}.write(t, dir, fmt.Sprintf("c%d", i))
		all = append(all, pair)
	}
	return all
}

// secureConn speaks TLS with e as a client that asks for a name and trusts everything. protocols
// are those of ALPN.
func (e *edge) secureConn(name string, protocols ...string) *tls.Conn {
	e.t.Helper()
	c := tls.Client(e.dial(), &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: protocols})
	if err := c.Handshake(); err != nil {
		e.t.Fatalf("a handshake for %q: %v", name, err)
	}
	return c
}

func TestAClientGetsTheCertificateForTheNameItAsksFor(t *testing.T) {
	e := open(t, new(recorder), func(o *Options) {
		o.Certificates = certificatesFor(t, t.TempDir(),
			"first.example.com", "*.example.com", "api.example.com other.example.org", "*.api.example.com", "127.0.0.1")
	})
	for name, want := range map[string]string{
		"first.example.com":    "c0",
		"api.example.com":      "c2", // exact before a wildcard
		"API.Example.Com":      "c2",
		"api.example.com.":     "c2",
		"other.example.org":    "c2",
		"shop.example.com":     "c1",
		"v1.api.example.com":   "c3",
		"a.v1.api.example.com": "c0", // a wildcard is one label
		"example.com":          "c0",
		"unknown.test":         "c0",
		"":                     "c0", // no name at all
	} {
		if got := e.secureConn(name).ConnectionState().PeerCertificates[0].Subject.CommonName; got != want {
			t.Errorf("%q got the certificate %s, want %s", name, got, want)
		}
	}
}

func TestAClientGetsTheKindOfKeyThatItSupports(t *testing.T) {
	dir := t.TempDir()
	ec, _ := issued{hosts: []string{"api.example.com"}}.write(t, dir, "ecdsa")
	rs, _ := issued{hosts: []string{"api.example.com"}, rsa: true}.write(t, dir, "rsa")
	wide, _ := issued{hosts: []string{"*.example.com"}, rsa: true}.write(t, dir, "wide")
	shop, _ := issued{hosts: []string{"shop.example.com"}}.write(t, dir, "shop")
	e := open(t, new(recorder), func(o *Options) { o.Certificates = []KeyPair{ec, rs, wide, shop} })
	suites := map[string]uint16{"ecdsa": tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "rsa": tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
	for _, test := range []struct{ name, kind, want string }{
		{"api.example.com", "ecdsa", "ecdsa"},
		{"api.example.com", "rsa", "rsa"},
		{"shop.example.com", "ecdsa", "shop"},
		{"shop.example.com", "rsa", "wide"}, // which the client can use, unlike the exact one
		{"unknown.test", "ecdsa", "ecdsa"},
		{"unknown.test", "rsa", "rsa"}, // the default, with the other key
	} {
		c := tls.Client(e.dial(), &tls.Config{ServerName: test.name, InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suites[test.kind]}})
		if err := c.Handshake(); err != nil {
			t.Fatalf("%+v: %v", test, err)
		}
		if got := c.ConnectionState().PeerCertificates[0].Subject.CommonName; got != test.want {
			t.Errorf("%s by %s: got %s, want %s", test.name, test.kind, got, test.want)
		}
	}
}

// The names of a renewed certificate are served; a broken pair keeps its names, and disturbs no
// other pair.
func TestEachPairIsReloadedByItself(t *testing.T) {
	dir, now, log := t.TempDir(), time.Now(), new(logtest.Buffer)
	pairs := certificatesFor(t, dir, "a.example.com", "b.example.com")
	s, err := loadCertificates(pairs, nil, slog.New(slog.NewTextHandler(log, nil)), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pairs[0].CertFile, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	renewed, _ := issued{hosts: []string{"b.example.com", "new.example.com"}}.write(t, dir, "c1")
	stamp := now.Add(time.Minute) // the file system's clock may be coarse
	for _, name := range []string{pairs[0].CertFile, renewed.CertFile, renewed.KeyFile} {
		if err := os.Chtimes(name, stamp, stamp); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(time.Second)
	s.warn()
	l := s.loaded.Load()
	for host, want := range map[string]*tls.Certificate{"a.example.com": l.all[0], "b.example.com": l.all[1], "new.example.com": l.all[1]} {
		if exact, _ := l.named(host); len(exact) != 1 || exact[0] != want {
			t.Errorf("%s has %d certificates", host, len(exact))
		}
	}
	if len(l.all[1].Leaf.DNSNames) != 2 {
		t.Error("the second pair was not reloaded")
	}
	if n := strings.Count(log.String(), "stays in force"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log)
	}
}

// helloFor is a client that asks for a name.
func helloFor(name string) *tls.ClientHelloInfo {
	return &tls.ClientHelloInfo{
		ServerName: name, SupportedVersions: []uint16{tls.VersionTLS13}, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
	}
}

// A textFunc is a log.
type textFunc func(line string)

func (f textFunc) Write(p []byte) (int, error) { f(string(p)); return len(p), nil }

// A handshake goes on while another one waits for what ACME stores, or for the log.
func TestNoHandshakeWaitsForAnother(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	pairs := certificatesFor(t, dir, "a.example.com", "b.example.com")
	var s *certificates
	during := 0
	meanwhile := func(string) {
		during++
		before := s.checked
		s.checked = now.Add(-time.Hour) // the files are due
		if c, err := s.get(helloFor("a.example.com")); err != nil || c != s.loaded.Load().all[0] {
			t.Errorf("meanwhile a client got %v, %v", c, err)
		}
		s.checked = before
	}
	s, err := loadCertificates(pairs, issuedCertificates(t, "", "api.example.com"), slog.New(slog.NewTextHandler(textFunc(meanwhile), nil)), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	s.issued = func(name string) *tls.Certificate { meanwhile(name); return nil }
	if c, err := s.get(helloFor("api.example.com")); c != nil || err != nil || during != 1 {
		t.Errorf("a name by ACME: %v, %v, after %d others", c, err, during)
	}
	if err := os.WriteFile(pairs[1].CertFile, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	if _, err := s.get(helloFor("b.example.com")); err != nil || during != 2 {
		t.Errorf("a file that changed: %v, after %d others", err, during)
	}
}

// What no client accepts, or is given for nothing, is reported at the start and after a change, not
// daily.
func TestCertificatesWithoutUseAreReported(t *testing.T) {
	dir := t.TempDir()
	nameless, _ := issued{}.write(t, dir, "nameless")
	api, _ := issued{hosts: []string{"api.example.com"}}.write(t, dir, "api")
	again := KeyPair{filepath.Join(dir, "again.pem"), api.KeyFile}
	text, err := os.ReadFile(api.CertFile)
	if err == nil {
		err = os.WriteFile(again.CertFile, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	second, _ := issued{hosts: []string{"api.example.com"}}.write(t, dir, "second")
	// for clients that accept no other kind of key
	other, _ := issued{hosts: []string{"api.example.com"}, rsa: true}.write(t, dir, "other")
	wild, _ := issued{hosts: []string{"*.shop.example.com", "192.0.2.1"}}.write(t, dir, "wild")
	manager := issuedCertificates(t, "", "www.example.org")
	synctest.Test(t, func(t *testing.T) {
		log := new(logtest.Buffer)
		s, err := loadCertificates([]KeyPair{nameless, api, again, second, other, wild}, manager, slog.New(slog.NewTextHandler(log, nil)), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		s.served = []string{"api.example.com", "*.example.com", "*.example.org", "a.shop.example.com", "www.example.org", "192.0.2.1", "b.example.com", "*.example.net"}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); s.watch(ctx) }()
		synctest.Wait()
		for _, want := range []string{
			"names no host.* name=nameless certificate=.*nameless.pem", "given twice.* name=api.example.com certificate=.*api.pem again=.*again.pem",
			"never used.* name=api.example.com certificate=.*api.pem unused=.*second.pem",
			"no TLS certificate.* host=b.example.com\n", `no TLS certificate.* host=\*.example.net\n`,
		} {
			if n := len(regexp.MustCompile("level=WARN msg=.*"+want).FindAllString(log.String(), -1)); n != 1 {
				t.Errorf("%d lines match %s", n, want)
			}
		}
		lines := func(of string) int { return strings.Count(log.String(), of) }
		if n := lines("names no host") + lines("given twice") + lines("never used") + lines("no TLS certificate"); n != 5 {
			t.Errorf("%d warnings:\n%s", n, log)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := lines("given twice"); n != 1 {
			t.Errorf("%d lines after a day", n)
		}
		cancel()
		<-ended
	})
}

// A gateway asks for a certificate for each host that its upstreams are for.
func TestAHostOfAnUpstreamWithoutACertificateIsReported(t *testing.T) {
	e := open(t, nil, func(o *Options) {
		o.Certificates = certificatesFor(t, t.TempDir(), "api.example.com")
		o.Sites = []Site{
			{Host: "api.example.com", Upstreams: []*url.URL{siteBackend(t, "api", "")}},
			{Host: "shop.example.com", Upstreams: []*url.URL{siteBackend(t, "shop", "")}},
			{Upstreams: []*url.URL{siteBackend(t, "rest", "")}},
		}
	})
	eventually(t, "the host is reported", func() bool {
		return strings.Contains(e.log.String(), "a host of an upstream has no TLS certificate") && strings.Contains(e.log.String(), "host=shop.example.com")
	})
	e.stop()
	if n := strings.Count(e.log.String(), "has no TLS certificate"); n != 1 {
		t.Errorf("%d hosts:\n%s", n, e.log)
	}
}

func TestACertificateThatExpiresSoonIsReportedDaily(t *testing.T) {
	dir := t.TempDir()
	const day = 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		var pairs []KeyPair
		for name, life := range map[string][2]time.Duration{ // before now, and after
			"year": {300 * day, 65 * day}, "tonight": {80 * day, 10 * time.Hour}, "short": {day, 5*day + time.Hour}, "fortnight": {70 * day, 15*day + time.Hour},
		} {
			pair, _ := issued{hosts: []string{name + ".example.com"}, from: now.Add(-life[0]), to: now.Add(life[1])}.write(t, dir, name)
			pairs = append(pairs, pair)
		}
		log := new(logtest.Buffer)
		s, err := loadCertificates(pairs, nil, slog.New(slog.NewTextHandler(log, nil)), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); s.watch(ctx) }()
		seen := 0
		for i, want := range []string{
			"tonight soon", "tonight expired", "fortnight soon tonight expired", "fortnight soon tonight expired",
			"fortnight soon short soon tonight expired",
		} {
			synctest.Wait()
			lines := strings.Split(strings.TrimSpace(log.String()[seen:]), "\n")
			seen = len(log.String())
			var got []string
			for _, name := range []string{"fortnight", "short", "tonight", "year"} {
				for _, line := range lines {
					if strings.Contains(line, "name="+name+".example.com") {
						got = append(got, name, map[bool]string{true: "soon", false: "expired"}[strings.Contains(line, "expires soon")])
					}
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("day %d: %q, want %q", i, got, want)
			}
			time.Sleep(day)
		}
		cancel()
		<-ended
		if got := s.expiries()["tonight.example.com"]; !got.Equal(now.Add(10 * time.Hour).Truncate(time.Second)) {
			t.Errorf("it expires at %v", got)
		}
	})
}

// foreignEdge has certificates for two hosts, and a site for each.
func foreignEdge(t *testing.T, change func(*Options)) *edge {
	return open(t, nil, func(o *Options) {
		policy := sitePolicy(t)
		for i := range policy.Limiters {
			policy.Limiters[i].Windows[0].Limit += 1000
		}
		o.Decider = testDecider(t, policy)
		o.Certificates = certificatesFor(t, t.TempDir(), "api.example.com both.example.com", "shop.example.com")
		for _, name := range []string{"api", "shop", "both"} {
			o.Sites = append(o.Sites, Site{Host: name + ".example.com", Upstreams: []*url.URL{siteBackend(t, name, "")}})
		}
		if change != nil {
			change(o)
		}
	})
}

// A request for a host that the connection was not made for is misdirected (RFC 9110, section
// 15.5.20), over HTTP/1.1 and HTTP/2. It spends the budget of the host that it names.
func TestARequestForAnotherHostThanTheConnectionsIsMisdirected(t *testing.T) {
	e := foreignEdge(t, nil)
	for _, test := range []struct {
		sni, host string
		status    int
		limit     string
	}{
		{"api.example.com", "api.example.com", 200, "1011"},
		{"api.example.com", "API.example.com.:8443", 200, "1011"},
		{"api.example.com", "both.example.com", 200, "1013"}, // the same certificate is for it
		{"api.example.com", "shop.example.com", 421, "1012"},
		{"api.example.com", "api.example.com", 200, "1011"}, // the connection goes on
		{"shop.example.com", "api.example.com", 421, "1011"},
		{"shop.example.com", "unknown.test", 421, "1014"},
		{"", "api.example.com", 200, "1011"}, // the default is for it
		{"", "shop.example.com", 421, "1012"},
		{"unknown.test", "shop.example.com", 421, "1012"},
	} {
		for _, protocol := range []string{"http/1.1", "h2"} {
			c := e.secureConn(test.sni, protocol)
			var res *http.Response
			for range 2 { // the second on a connection that is used again
				res = requestOn(t, c, protocol, test.host)
				got := text(t, res)
				if res.StatusCode != test.status || limitOf(res.Header) != test.limit || test.status == 421 && !strings.Contains(got, `"code":"misdirected_request"`) {
					t.Errorf("%s: SNI %q, Host %q: %d by limit %q: %s; want %d by %s", protocol, test.sni, test.host, res.StatusCode, limitOf(res.Header), got, test.status, test.limit)
				}
				if protocol == "h2" {
					break
				}
			}
			c.Close()
		}
	}
	if res := requestTo(t, e.secureConn("shop.example.com", "http/1.1"), "GET /healthz", "127.0.0.1"); res.StatusCode != 200 {
		t.Errorf("a health check by address: %d", res.StatusCode)
	}
}

// One connection carries requests for its own host and for others, in any order.
func TestAnotherHostIsNoticedOnAKeptConnection(t *testing.T) {
	e := foreignEdge(t, nil)
	c := e.secureConn("api.example.com", "http/1.1")
	r := bufio.NewReader(c)
	for i, host := range []string{"api.example.com", "shop.example.com", "shop.example.com", "both.example.com", "api.example.com", "shop.example.com"} {
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		text(t, res)
		if want := map[bool]int{true: 421, false: 200}[host == "shop.example.com"]; res.StatusCode != want {
			t.Errorf("request %d, for %s: %d, want %d", i, host, res.StatusCode, want)
		}
	}
}

// A proxy that is trusted may send what it likes on one connection, and a server with one
// certificate and one site does not compare names.
func TestWhoMayNameAnotherHost(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"a trusted proxy": func(o *Options) { o.TrustedProxies = []netip.Prefix{mustPrefix("127.0.0.0/8")} },
		"one of each":     func(o *Options) { o.Certificates, o.Sites = o.Certificates[:1], To(o.Sites[1].Upstreams...) },
	} {
		e := foreignEdge(t, change)
		for _, protocol := range []string{"http/1.1", "h2"} {
			if res := requestOn(t, e.secureConn("api.example.com", protocol), protocol, "shop.example.com"); res.StatusCode != 200 {
				t.Errorf("%s, %s: %d, want 200", name, protocol, res.StatusCode)
			}
		}
	}
}

// With the sample backend, or any handler, several certificates alone make a request foreign.
func TestAForeignRequestNeverReachesAHandler(t *testing.T) {
	seen := new(recorder)
	e := open(t, seen, func(o *Options) {
		o.Certificates = certificatesFor(t, t.TempDir(), "api.example.com", "shop.example.com")
	})
	if res := requestTo(t, e.secureConn("api.example.com", "http/1.1"), "GET /v1/wp/status", "shop.example.com"); res.StatusCode != 421 || limitOf(res.Header) != wpPlugin {
		t.Errorf("%d by limit %q", res.StatusCode, limitOf(res.Header))
	}
	if s, ok := seen.last(); ok {
		t.Errorf("the handler saw %v", s)
	}
}

// requestOn sends GET / on c, and reads the answer. Over HTTP/2 it uses the connection up.
func requestOn(t *testing.T, c *tls.Conn, protocol, host string) *http.Response {
	t.Helper()
	if protocol == "http/1.1" {
		return requestTo(t, c, "GET /", host)
	}
	p := new(http.Protocols)
	p.SetHTTP2(true)
	transport := &http.Transport{Protocols: p, DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}
	t.Cleanup(transport.CloseIdleConnections)
	res, err := transport.RoundTrip(&http.Request{Method: "GET", URL: &url.URL{Scheme: "https", Host: "weir.test", Path: "/"}, Host: host, Header: http.Header{}})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// requestTo sends one request by HTTP/1.1, and reads the answer.
func requestTo(t *testing.T, c net.Conn, line, host string) *http.Response {
	t.Helper()
	if _, err := io.WriteString(c, line+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	res.Body = io.NopCloser(strings.NewReader(string(body)))
	return res
}
