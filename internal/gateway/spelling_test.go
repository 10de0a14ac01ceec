package gateway

import (
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/internal/target"
)

// The endpoints that have their own limiters, as a backend would route them.
var endpoints = []struct{ method, path, limiter string }{
	{"POST", "/api/v1/widget/init", "widget-init"},
	{"POST", "/api/v1/widget/messages", "widget-session"},
	{"GET", "/api/v1/widget/events", "widget-session"},
	{"DELETE", "/api/v1/widget/conversations", "widget-session"},
	{"POST", "/api/v1/widget/leads", "widget-leads"},
	{"POST", "/api/v1/widget/typing", "widget-typing"},
	{"POST", "/api/v1/widget/satisfaction", "widget-satisfaction"},
	{"POST", "/api/v1/widget/coupon/apply", "widget-coupon"},
	{"PUT", "/v1/wp/documents", "wp-plugin"},
	{"GET", "/v1/wp/status", "wp-plugin"},
	{"GET", "/v1/wp", "wp-plugin"},
}

// readings returns every path that some backend may derive from a decoded path: in
// lower case, without parameters of segments or everything after one, without a
// query or fragment, blanks, trailing slash or extension. It shares no code with
// the tested package.
func readings(path string) map[string]bool {
	set := map[string]bool{path: true}
	steps := []func(string) string{
		strings.ToLower,
		func(s string) string { return strings.NewReplacer("\u017f", "s", "\u212a", "k").Replace(s) },
		func(s string) string { before, _, _ := strings.Cut(s, ";"); return before },
		func(s string) string { before, _, _ := strings.Cut(s, "?"); return before },
		func(s string) string { before, _, _ := strings.Cut(s, "#"); return before },
		func(s string) string {
			segments := strings.Split(s, "/")
			for i := range segments {
				segments[i], _, _ = strings.Cut(segments[i], ";")
			}
			return strings.Join(segments, "/")
		},
		func(s string) string {
			for strings.Contains(s, "//") {
				s = strings.ReplaceAll(s, "//", "/")
			}
			return s
		},
		func(s string) string { return strings.TrimRight(s, "/") },
		func(s string) string { return strings.TrimRight(s, " ") },
		func(s string) string { return strings.NewReplacer(" /", "/", "/ ", "/").Replace(s) },
		func(s string) string {
			if dot := strings.LastIndexByte(s, '.'); dot > strings.LastIndexByte(s, '/') {
				return s[:dot]
			}
			return s
		},
	}
	for grown := true; grown; {
		grown = false
		for s := range set {
			for _, step := range steps {
				if r := step(s); !set[r] {
					set[r], grown = true, true
				}
			}
		}
	}
	return set
}

// checkSpelling sends one target, and compares the backend's path with the charged
// limiter.
func checkSpelling(t rapid.TB, e *edge, seen *recorder, method, spelled, limiter string) {
	res := e.ask(method + " " + spelled)
	got, reached := seen.last()
	if !reached {
		// Our own 400, or that of the HTTP parser, which is not a request of a
		// surface.
		if res.StatusCode != http.StatusBadRequest {
			t.Fatalf("%s %q: status %d, and the backend saw nothing", method, spelled, res.StatusCode)
		}
		return
	}
	if canonical, err := target.Canonical(got.escaped); err != nil || canonical != got.escaped {
		t.Fatalf("%s %q: the backend received %q, which is not canonical", method, spelled, got.escaped)
	}
	charged := map[string]string{}
	for _, l := range testLimiters {
		charged[strings.Fields(l.window)[0]] = l.name
	}
	if name := charged[limitOf(res.Header)]; name != got.limiter {
		t.Fatalf("%s %q: the headers are of %q, the backend received %q", method, spelled, name, got.limiter)
	}
	if limiter != "" && got.limiter != limiter {
		t.Fatalf("%s %q: charged to %q, want %q", method, spelled, got.limiter, limiter)
	}
	paths := readings(got.path)
	for _, endpoint := range endpoints {
		if endpoint.method == method && paths[endpoint.path] && got.limiter != endpoint.limiter {
			t.Fatalf("%s %q: reaches the backend as %q, which it may take for %s, but was charged to %q, not %q",
				method, spelled, got.path, endpoint.path, got.limiter, endpoint.limiter)
		}
	}
}

// Each of dozens of spellings of every endpoint is charged to the endpoint's
// limiter, or refused (D10).
func TestEverySpellingIsChargedToItsEndpointOrRefused(t *testing.T) {
	seen := new(recorder)
	e := open(t, seen, nil)
	counted := []func(string) string{
		func(p string) string { return p },
		func(p string) string { return p + "/" },
		func(p string) string { return p + "//" },
		func(p string) string { return p + "?x=1" },
		func(p string) string { return p + "/?/../.." },
		func(p string) string { return "/" + p },
		func(p string) string { return "//x/.." + p },
		func(p string) string { return "/." + p },
		func(p string) string { return "/%2e" + p },
		func(p string) string { return "/.." + p },
		func(p string) string { return "/%2e%2E" + p },
		func(p string) string { return "/x/%2e." + p },
		func(p string) string { return p + "/." },
		func(p string) string { return p + "/x/.." },
		func(p string) string { return p + "/%78/%2e%2e/" },
		func(p string) string { return strings.ToUpper(p) },
		func(p string) string { return strings.ReplaceAll(p, "w", "W") },
		func(p string) string { return strings.ReplaceAll(p, "/", "//") },
		func(p string) string { return strings.ReplaceAll(p, "/", "/./") },
		func(p string) string { return strings.ReplaceAll(p, "i", "%69") },
		func(p string) string { return strings.ReplaceAll(p, "v", "%76") },
		func(p string) string { return strings.ReplaceAll(p, "v", "%56") },
		func(p string) string { return strings.ReplaceAll(p, "s", "%c5%bf") }, // long s
		func(p string) string { return p + ";x=1" },
		func(p string) string { return p + ";" },
		func(p string) string { return p + ";/" },
		func(p string) string { return p + ";a;b/;c" },
		func(p string) string { return p + "%3Bx" },
		func(p string) string { return "/;x" + p },
		func(p string) string { return strings.ReplaceAll(p, "/v1", ";q/v1;r") },
		func(p string) string { return p + ".json" },
		func(p string) string { return p + "." },
		func(p string) string { return p + ".%6Ason;x/" },
		func(p string) string { return p + "%3Fx" },
		func(p string) string { return p + "%3fx/y" },
		func(p string) string { return p + "%23x" },
		func(p string) string { return p + "%20" },
		func(p string) string { return p + "%20%20/" },
		func(p string) string { return "http://elsewhere.test" + p },
		func(p string) string { return "HTTPS://u:p@elsewhere.test:99" + p },
	}
	refused := []func(string) string{
		func(p string) string { return p + "%2f" },
		func(p string) string { return p + "%2Fx" },
		func(p string) string { return p + "%5c" },
		func(p string) string { return p + `\` },
		func(p string) string { return strings.ReplaceAll(p, "/", `\`) },
		func(p string) string { return p[:1] + strings.ReplaceAll(p[1:], "/", `%2F`) },
		func(p string) string { return p[:1] + strings.ReplaceAll(p[1:], "/", `\`) },
		func(p string) string { return p + "%00" },
		func(p string) string { return p + "%00.png" },
		func(p string) string { return p + "%0a" },
		func(p string) string { return p + "%0d%0aX:%20y" },
		func(p string) string { return strings.ReplaceAll(p, "i", "%2569") + "%2541" },
		func(p string) string { return p + "%252e%252e" },
		func(p string) string { return p + "%25%32%66" },
		func(p string) string { return p + "%u002f" },
		func(p string) string { return p + "%25u002f" },
		func(p string) string { return p + "%" },
		func(p string) string { return p + "%4" },
		func(p string) string { return p + "%c0%af" },
		func(p string) string { return p + "%c0%ae%c0%ae/" },
		func(p string) string { return p + "%ff" },
		func(p string) string { return p + "\xff" },
		func(p string) string { return p + "#x" },
		func(p string) string { return p + "?a#b" },
		func(p string) string { return "/x/..;" + p },
		func(p string) string { return "/x/..;y=z" + p },
		func(p string) string { return "/x/%2e%2e%3B" + p },
		func(p string) string { return p[1:] },
		func(p string) string { return "ftp://elsewhere.test" + p },
		func(p string) string { return "http:" + p },
		func(p string) string { return "x:" + p[1:] },
	}
	for _, endpoint := range endpoints {
		for _, spell := range counted {
			checkSpelling(t, e, seen, endpoint.method, spell(endpoint.path), endpoint.limiter)
		}
		for _, spell := range refused {
			target := spell(endpoint.path)
			if res := e.ask(endpoint.method + " " + target); res.StatusCode != http.StatusBadRequest {
				t.Errorf("%s %q: status %d, want 400", endpoint.method, target, res.StatusCode)
			}
			if got, reached := seen.last(); reached {
				t.Errorf("%s %q reached the backend as %q", endpoint.method, target, got.escaped)
			}
		}
	}
}

// The same for generated spellings (D10).
func TestGeneratedSpellingsAreChargedToTheirEndpoint(t *testing.T) {
	seen := new(recorder)
	e := open(t, seen, nil)
	noise := []string{
		"/", "//", ".", "..", "/.", "/..", "/../", "/./", "%2e", "%2E%2e", "%2f", "%5c", `\`, ";", ";x", ";x=/", "%3b", "%3B/",
		"?", "%3f", "%3F", "#", "%23", "%20", "%09", "%00", "%25", "%2525", "%256c", "%c5%bf", "%e2%84%aa", "%C3%A9", "%c0%af", "%",
		"%4", "x", ".json", ".", "~", "%7e", "*", "@", ":", "|", "[", "&", "=", "+", "http://h",
	}
	rapid.Check(t, func(t *rapid.T) {
		endpoint := rapid.SampledFrom(endpoints).Draw(t, "endpoint")
		var target strings.Builder
		for i := range len(endpoint.path) {
			c := endpoint.path[i : i+1]
			switch rapid.IntRange(0, 24).Draw(t, "how") {
			case 0:
				c = strings.ToUpper(c)
			case 1:
				c = "%" + string("0123456789ABCDEF"[c[0]>>4]) + strings.ToLower(string("0123456789ABCDEF"[c[0]&15]))
			case 2:
				c = rapid.SampledFrom(noise).Draw(t, "noise") + c
			}
			target.WriteString(c)
		}
		for range rapid.IntRange(0, 3).Draw(t, "more") {
			target.WriteString(rapid.SampledFrom(noise).Draw(t, "tail"))
		}
		checkSpelling(t, e, seen, endpoint.method, target.String(), "")
	})
}

// A path that cannot be normalized costs a unit of the surface's fallback, and of
// no other limiter (D10).
func TestAnInvalidPathIsChargedToItsSurface(t *testing.T) {
	seen := new(recorder)
	e := open(t, seen, nil)
	for target, limit := range map[string]string{
		"/api/v1/widget/leads%2f":       other,
		`/api/v1/widget\init`:           other,
		"/api/v1%2Fwidget/init":         other,
		"/API/v1/widget/%252e%252e":     other,
		"/api/v1/widget/events%00":      other,
		"/v1/wp%5cstatus":               wpPlugin,
		"/v1/wp/..;/status":             wpPlugin,
		"/v1/wp/documents%2f..%2f":      wpPlugin,
		"/v1%252fwp%252fstatus":         wpPlugin,
		"/elsewhere%2f":                 "",
		"http://h/v1/wp/%ff":            wpPlugin,
		"/api/v1/widget/messages?a#b":   other,
		"/x/%2e%2e%2fapi/v1/widget/x":   other,
		"/v1/wp/..%2f..%2fother/secret": wpPlugin,
	} {
		res := e.ask("POST " + target)
		t.Run(target, func(t *testing.T) { want(t, res, http.StatusBadRequest, "invalid_request", limit) })
		if _, reached := seen.last(); reached {
			t.Errorf("%q reached the backend", target)
		}
	}
}
