package target

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

func TestAPathHasOneForm(t *testing.T) {
	for path, want := range map[string]string{
		"":                            "/",
		"/":                           "/",
		"/a":                          "/a",
		"/a/":                         "/a/",
		"//":                          "/",
		"//host/path":                 "/host/path",
		"/a//b///c":                   "/a/b/c",
		"/a//":                        "/a/",
		"/./a/./b/.":                  "/a/b/",
		"/a/b/..":                     "/a/",
		"/a/../b":                     "/b",
		"/a/..":                       "/",
		"/..":                         "/",
		"/../../a":                    "/a",
		"/a/%2e%2e/b":                 "/b",
		"/a/.%2E/b":                   "/b",
		"/%2e/a":                      "/a",
		"/a//../b":                    "/b",
		"/.../a":                      "/.../a",
		"/.well-known/x":              "/.well-known/x",
		"/%61%50i":                    "/aPi",
		"/a%7eb%2Dc":                  "/a~b-c",
		"/a%20b":                      "/a%20b",
		"/a%3fb":                      "/a%3Fb",
		"/a%23b":                      "/a%23b",
		"/a%3bb;c=d":                  "/a%3Bb;c=d",
		"/100%25":                     "/100%25",
		"/100%25/a":                   "/100%25/a",
		"/a%25zz":                     "/a%25zz",
		"/a<b>\"c\"":                  "/a%3Cb%3E%22c%22",
		"/a[1]{2}|^`":                 "/a%5B1%5D%7B2%7D%7C%5E%60",
		"/caf\u00e9":                  "/caf%C3%A9",
		"/caf%c3%a9":                  "/caf%C3%A9",
		"/a!$&'()*+,;=:@b":            "/a!$&'()*+,;=:@b",
		"/a%21%24":                    "/a%21%24",
		"/api/v1/widget/leads;jid=1/": "/api/v1/widget/leads;jid=1/",
	} {
		t.Run(path, func(t *testing.T) {
			got, err := Canonical(path)
			if err != nil || got != want {
				t.Errorf("Canonical(%q) = %q, %v; want %q", path, got, err, want)
			}
		})
	}
}

func TestAPathWithNoSafeReadingIsRefused(t *testing.T) {
	for path, reason := range map[string]string{
		"a":                 "slash",
		"*":                 "slash",
		"/a%2fb":            "escaped slash",
		"/a%2Fb":            "escaped slash",
		"/a%5cb":            "backslash",
		`/a\b`:              "backslash",
		`/\a`:               "backslash",
		"/a%00":             "control",
		"/a\x00":            "control",
		"/a%0d%0ab":         "control",
		"/a\tb":             "control",
		"/a%7f":             "control",
		"/a%c2%85":          "control", // U+0085, next line
		"/%256c":            "survives",
		"/%25%36%63":        "survives",
		"/%2525":            "", // decoded once, it gives %25, which is an escape
		"/a%25u002fb":       "survives",
		"/a%":               "does not begin an escape",
		"/a%2":              "does not begin an escape",
		"/a%zz":             "does not begin an escape",
		"/a%c0%afb":         "UTF-8", // an overlong slash
		"/a%c0%ae":          "UTF-8",
		"/a%e0%80%af":       "UTF-8",
		"/a%ff":             "UTF-8",
		"/a\xffb":           "UTF-8",
		"/a%ed%a0%80":       "UTF-8", // a surrogate
		"/a b":              "raw",
		"/a#b":              "raw",
		"/a/..;x/b":         "dot segment",
		"/a/.;/b":           "dot segment",
		"/a/%2e%2e;x/b":     "dot segment",
		"/a/..%3bx/b":       "dot segment",
		"/a/..%20/b":        "dot segment",
		"/a/..%3F/b":        "dot segment",
		"/a/..%23":          "dot segment",
		"/a/%20../b":        "dot segment",
		"/a/.%20./b":        "dot segment",
		"/a/%20.%20%20.;x":  "dot segment",
		"/x/%2e%2e%2fleads": "escaped slash",
	} {
		t.Run(path, func(t *testing.T) {
			got, err := Canonical(path)
			var e *PathError
			if !errors.As(err, &e) || !strings.Contains(err.Error(), reason) {
				t.Errorf("Canonical(%q) = %q, %v; want a PathError with %q", path, got, err, reason)
			}
		})
	}
}

// A path without a canonical form is charged to the surface that it was meant for (D10).
func TestAGuessFindsTheSurface(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/wp%2fstatus":              "/v1/wp/status",
		"/v1%252fwp/status":            "/v1/wp/status",
		`/api/v1\widget\leads`:         "/api/v1/widget/leads",
		"/api/v1/widget%5cleads":       "/api/v1/widget/leads",
		"/api/v1/widget%c0%afleads":    "/api/v1/widget/leads",
		"/api/v1/wid%00get/leads":      "/api/v1/widget/leads",
		"/api/v1/widget/%25%36cEADS":   "/api/v1/widget/lEADS",
		"%2fv1%2fwp":                   "/v1/wp",
		"/%25252525252525252525252576": "/%2525252576", // at most eight rounds of decoding
	} {
		t.Run(path, func(t *testing.T) {
			if got := Guess(path); got != want {
				t.Errorf("Guess(%q) = %q, want %q", path, got, want)
			}
		})
	}
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"/", "/a/../b", "/%2e%2e/", "/a%2fb", "//x//", "/a;b/%7E", "/%25", "/caf%C3%A9/", "/..;/x", "/%3f", "/[a]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		once, err := Canonical(path)
		if err != nil {
			Guess(path)
			return
		}
		twice, err := Canonical(once)
		if err != nil || twice != once {
			t.Fatalf("Canonical(%q) = %q, again: %q, %v", path, once, twice, err)
		}
		u, err := url.ParseRequestURI(once)
		if err != nil {
			t.Fatalf("%q is not a request target: %v", once, err)
		}
		if u.EscapedPath() != once || u.RawQuery != "" {
			t.Fatalf("%q reads as path %q and query %q", once, u.EscapedPath(), u.RawQuery)
		}
		if _, decoded, _ := Decode(path); decoded != u.Path {
			t.Fatalf("%q decodes to %q here, to %q in net/url", once, decoded, u.Path)
		}
		for segment := range strings.SplitSeq(once[1:], "/") {
			if segment == "." || segment == ".." {
				t.Fatalf("%q keeps a dot segment", once)
			}
		}
		if strings.Contains(once, "//") {
			t.Fatalf("%q keeps an empty segment", once)
		}
		for i := range len(once) {
			if once[i] <= ' ' || once[i] >= 0x7f {
				t.Fatalf("%q is not printable ASCII", once)
			}
		}
	})
}

func BenchmarkCanonicalPlain(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Canonical("/api/v1/widget/conversations/c_8f3a61b0/close"); err != nil {
			b.Fatal(err)
		}
	}
}
