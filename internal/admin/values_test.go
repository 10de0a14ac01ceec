package admin_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/admin"
)

// A caller that is counted by a cookie, a parameter, a host or a claim is named by its value, as
// the server finds it in a request. No value is in the audit log.
func TestACallerIsNamedByWhatItsRequestsCarry(t *testing.T) {
	sessions, err := identity.NewSessions(identity.SessionsOptions{Keys: []identity.SessionKey{secretKey(t)}})
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(o *admin.Options) { o.Sessions = sessions })
	f.answered(call{method: "POST", path: "/policy", header: map[string]string{"Content-Type": "application/yaml"}, body: "limiters:\n" +
		"  - {name: cookie, routes: [/cookie], windows: ['2 per minute by cookie:sid'], chosen: yes}\n" +
		"  - {name: query, routes: [/query], windows: ['2 per minute by query:tenant'], chosen: yes}\n" +
		"  - {name: host, routes: [/host], windows: ['2 per minute by host'], chosen: yes}\n" +
		"  - {name: cert, routes: [/cert], windows: ['2 per minute by cert']}\n" +
		"  - {name: claim, routes: [/claim], windows: ['2 per minute by claim:org.id or ip', '9 per hour by claim:org.id+session']}\n"}, nil)
	resolver, err := identity.New(identity.Options{Sessions: sessions, Certificates: true, Now: f.now})
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"exp": f.now().Add(time.Hour).Unix(), "iss": "shop", "sid": "visit-1", "org": map[string]any{"id": 4711}}).SignedString([]byte(strings.Repeat("s", 32)))
	if err != nil {
		t.Fatal(err)
	}
	spend := func(path string) {
		t.Helper()
		r, _ := http.NewRequest("GET", "http://Shop.Example.com:81"+path+"?tenant=acme+inc", nil)
		r.RemoteAddr = "192.0.2.7:1"
		r.Header.Set("Cookie", "theme=dark; sid=secret-1")
		r.Header.Set("Authorization", "Bearer "+token)
		leaf := &x509.Certificate{DNSNames: []string{"billing.example.com"}, NotAfter: f.now().Add(time.Hour)}
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
		var caller identity.Caller
		resolver.Start(&caller, &identity.HTTPRequest{Request: r})
		if d, err := f.decider.Decide(f.Context(), weir.Request{Method: "GET", Path: path, Keys: &caller}); err != nil || !d.Allowed {
			t.Fatalf("%s: %+v, %v", path, d, err)
		}
	}
	for _, c := range []struct{ limiter, query, body, kinds, want string }{
		{"cookie", "cookie=sid%3Dsecret-1", `"cookie":["sid=secret-1"]`, "cookie:sid", "cookie 1/2"},
		{"cookie", "cookie=sid%3D%22secret-1%22", `"cookie":["sid=secret-1"]`, "cookie:sid", "cookie 1/2"},
		{"query", "query=tenant%3Dacme+inc", `"query":["tenant=acme inc"]`, "query:tenant", "query 1/2"},
		{"host", "host=shop.example.com", `"host":"SHOP.example.com."`, "host", "host 1/2"},
		{"cert", "cert=dns%3ABilling.example.com", `"cert":"dns:billing.example.com"`, "cert", "cert 1/2"},
		{"claim", "claim=org.id%3D4711&issuer=shop&session=visit-1", `"claim":["org.id=4711"],"issuer":"shop","session":"visit-1"`, "session+claim:org.id", "claim 1/2, claim 1/9"},
	} {
		spend("/" + c.limiter)
		var got inspection
		f.answered(call{method: "GET", path: "/keys?limiter=" + c.limiter + "&" + c.query}, &got)
		if got.String() != c.want || got.Kinds != c.kinds {
			t.Errorf("%s: %v %s, want %s %s", c.limiter, got, got.Kinds, c.want, c.kinds)
		}
		f.answered(f.post("/keys/reset", `{`+c.body+`,"limiter":"`+c.limiter+`","why":"x"}`), &got)
		if strings.Contains(got.String(), " 1/") {
			t.Errorf("%s after a reset: %v", c.limiter, got)
		}
	}
	b, err := os.ReadFile(f.path("audit.log"))
	if err != nil || strings.Contains(string(b), "secret-1") || strings.Contains(string(b), "acme") || strings.Contains(string(b), "4711") || strings.Contains(string(b), "billing") {
		t.Errorf("the audit log has a value: %v\n%s", err, b)
	}
	for query, code := range map[string]string{
		"?cookie=sid": "invalid_caller", "?cookie=sid%3Da%22b": "invalid_caller", "?cookie=sid%3D%22%22": "invalid_caller", "?cookie=a%3Bb%3Dx": "invalid_caller", "?query=a%5B%5D%3Dx": "invalid_caller", "?claim=%3Dx": "invalid_caller",
		"?host=a/b": "invalid_caller", "?cert=billing.example.com": "invalid_caller", "?cert=dns:": "invalid_caller", "?claim=a%3D1&claim=a%3D2": "invalid_caller",
	} {
		f.refused(call{method: "GET", path: "/keys" + query}, 400, code)
	}
}

func TestAHostInOtherLettersIsItsASCIIForm(t *testing.T) {
	f := newFixture(t, nil)
	f.answered(call{method: "POST", path: "/policy", header: map[string]string{"Content-Type": "application/yaml"}, body: "limiters:\n" +
		"  - {name: host, routes: [/host], windows: ['2 per minute by host'], chosen: yes}\n"}, nil)
	if _, err := f.decider.Decide(f.Context(), weir.Request{Method: "GET", Path: "/host", Keys: hostKeys("xn--bcher-kva.example")}); err != nil {
		t.Fatal(err)
	}
	var got inspection
	f.answered(call{method: "GET", path: "/keys?host=B%C3%BCcher.example"}, &got)
	if got.String() != "host 1/2" {
		t.Errorf("%v", got)
	}
}

// hostKeys are the keys of a request for a host.
type hostKeys string

func (k hostKeys) AppendKey(dst []byte, source string) ([]byte, bool) {
	if source != identity.Host {
		return dst, false
	}
	return append(dst, k...), true
}
