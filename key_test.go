package weir

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"
	"time"
)

type sources map[string]string

func (s sources) AppendKey(dst []byte, source string) ([]byte, bool) {
	v, ok := s[source]
	return append(dst, v...), ok
}

func keyOf(t testing.TB, limiter string, per time.Duration, spec string, s Keys) []byte {
	t.Helper()
	k, err := ParseKey(spec)
	if err != nil {
		t.Fatal(err)
	}
	out := appendScope(nil, limiter, int64(per/time.Second), "", k)
	for _, p := range k {
		out = appendPart(out, p, s)
	}
	return out
}

// Different callers, limiters, lengths and sources never have the same key (D18).
func TestKeysDoNotCollide(t *testing.T) {
	long := strings.Repeat("x", 300)
	seen := map[string]string{}
	for _, c := range []struct {
		what, limiter, spec string
		per                 time.Duration
		s                   sources
	}{
		{"a, b_c", "l", "ip+agent", time.Minute, sources{"ip": "a", "agent": "b_c"}},
		{"a_b, c", "l", "ip+agent", time.Minute, sources{"ip": "a_b", "agent": "c"}},
		{"empty, ab", "l", "ip+agent", time.Minute, sources{"ip": "", "agent": "ab"}},
		{"ab, empty", "l", "ip+agent", time.Minute, sources{"ip": "ab", "agent": ""}},
		{"no agent", "l", "ip+agent", time.Minute, sources{"ip": "ab"}},
		{"nothing at all", "l", "ip+agent", time.Minute, sources{}},
		{"an hour", "l", "ip+agent", time.Hour, sources{"ip": "a", "agent": "b_c"}},
		{"another limiter", "m", "ip+agent", time.Minute, sources{"ip": "a", "agent": "b_c"}},
		{"a session", "l", "session or ip", time.Minute, sources{"ip": "b", "session": "a"}},
		{"an address", "l", "session or ip", time.Minute, sources{"ip": "a"}},
		{"long", "l", "ip", time.Minute, sources{"ip": long}},
		{"longer", "l", "ip", time.Minute, sources{"ip": long + "x"}},
		{"its digest", "l", "ip", time.Minute, sources{"ip": string(appendDigest(nil, []byte(long)))}},
		{"another order", "l", "agent+ip", time.Minute, sources{"ip": "b_c", "agent": "a"}},
	} {
		key := string(keyOf(t, c.limiter, c.per, c.spec, c.s))
		if other, taken := seen[key]; taken {
			t.Errorf("%q has the key of %q", c.what, other)
		}
		seen[key] = c.what
	}
}

// keptSources store only the SHA-256 of long values.
type keptSources struct {
	sources
	digested map[string]bool
}

func (s keptSources) Digested(source string) bool { return s.digested[source] }

// A stored digest of a long value names the same caller as the value (D13). A value
// that only has a digest's length is not taken for a digest.
func TestAStoredDigestIsNotDigestedAgain(t *testing.T) {
	for _, length := range []int{0, 1, 31, 32, 33, 256, 257, 8000} {
		value := strings.Repeat("v", length)
		kept := keptSources{sources{"agent": value}, map[string]bool{}}
		if length > 256 {
			kept.sources["agent"], kept.digested["agent"] = string(appendDigest(nil, []byte(value))), true
		}
		want := keyOf(t, "l", time.Minute, "agent", sources{"agent": value})
		if got := keyOf(t, "l", time.Minute, "agent", kept); !bytes.Equal(got, want) {
			t.Errorf("%d bytes: the key is %q, want %q", length, got, want)
		}
		kept.digested["agent"] = true
		if got := keyOf(t, "l", time.Minute, "agent", kept); length <= 256 && length != sha256.Size && !bytes.Equal(got, want) {
			t.Errorf("%d bytes: an invalid digest has the key %q", length, got)
		}
	}
}

// Different parts never have equal keys (D18).
func FuzzKeysAreInjective(f *testing.F) {
	f.Add("a", "b_c", "a_b", "c")
	f.Add("", "ab", "ab", "")
	f.Add("\x02ip", "\x00", "\x02", "ip\x00")
	f.Fuzz(func(t *testing.T, ip1, agent1, ip2, agent2 string) {
		a := keyOf(t, "l", time.Minute, "ip+agent", sources{"ip": ip1, "agent": agent1})
		b := keyOf(t, "l", time.Minute, "ip+agent", sources{"ip": ip2, "agent": agent2})
		if same := ip1 == ip2 && agent1 == agent2; bytes.Equal(a, b) != same {
			t.Errorf("keys of (%q, %q) and (%q, %q): equal %v", ip1, agent1, ip2, agent2, !same)
		}
	})
}

// Windows, routes and keys parse from a policy's spelling, and print in the same.
func TestSpellingsRoundTrip(t *testing.T) {
	for _, s := range []string{"1000 per minute by ip+agent", "30 per minute by session or ip", "5 per 10 seconds by ip", "1 per day by token or session or ip+agent", "7 per 90 minutes by ip", "5 per day by header:X-Api-Key or ip+agent"} {
		w, err := ParseWindow(s)
		if err != nil || w.String() != s {
			t.Errorf("window %q reads as %q, %v", s, w, err)
		}
	}
	for in, want := range map[string]string{"5 per 1 minutes by ip": "5 per minute by ip", "5 per 60 seconds by ip": "5 per minute by ip", "5 per 24 hours by  ip + agent": "5 per day by ip+agent",
		"5 per day by header:x-aPI-key or ip": "5 per day by header:X-Api-Key or ip"} {
		t.Run(in, func(t *testing.T) {
			if w, err := ParseWindow(in); err != nil || w.String() != want {
				t.Errorf("window %q reads as %q, %v; want %q", in, w, err, want)
			}
		})
	}
	for _, s := range []string{"POST /api/v1/widget/messages*", "/v1/wp/*", "/*", "GET /"} {
		if r, err := ParseRoute(s); err != nil || r.String() != s {
			t.Errorf("route %q reads as %q, %v", s, r, err)
		}
	}
}

// Each error has the value, and lists what is allowed.
func TestMistakesAreExplained(t *testing.T) {
	for in, want := range map[string]string{
		"":                                     "a window is LIMIT [requests] per",
		"5 per minute":                         "a window is LIMIT [requests] per",
		"5 a minute by ip":                     "a window is LIMIT [requests] per",
		"0 per minute by ip":                   `limit "0" is out of range`,
		"-1 per minute by ip":                  `limit "-1" is not a whole number`,
		"2147483648 per minute by ip":          "from 1 to 2147483647",
		"99999999999999999999 per day by ip":   "out of range",
		"5 per fortnight by ip":                `unit "fortnight" is unknown: second, minute, hour and day`,
		"5 per 0 minutes by ip":                "out of range",
		"5 per 32 days by ip":                  "longer than the longest window, 31 days",
		"5 per 2147483647 days by ip":          "longer than the longest window",
		"5 per minute by ip or":                "a key source is missing",
		"5 per minute by +ip":                  "a key source is missing",
		"5 per minute by ip agent":             `"agent" follows where only "or" or "+" is allowed`,
		"5 per minute by ip, 3 per hour by ip": "several windows: write each as a text of its own",
		"5 per minute by ip, 3 per hour":       `"ip," is not a valid name of a key source`,
		"5 per minute by IP":                   `"IP" is not a valid name of a key source`,
		"5 per minute by header:":              "a field's name has 1 to 64 characters",
		"5 per minute by header:X_Api_Key":     "letters, digits and dashes, as in header:X-Api-Key, and not '_'",
		"5 per minute by header:host":          "the field Host is about the connection",
	} {
		t.Run(in, func(t *testing.T) {
			if _, err := ParseWindow(in); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("window %q: error %v does not contain %q", in, err, want)
			}
		})
	}
	for in, want := range map[string]string{
		"":            "a route is [METHOD] [HOST]/path",
		"GET POST /x": "a route is [METHOD] [HOST]/path",
		"get /x":      "not in capital letters",
		"/a*b":        "a star is allowed at the end",
		"/a?b=1":      "without query",
		"/a%2fb":      "decoded path",
		"/a/../b":     "dot segment",
		"//a":         "empty or a dot segment",
		"/a\x00":      "control character",
		"/a\u0085b":   "not in capital letters",
		"example/a":   "does not begin with a slash",
	} {
		t.Run(in, func(t *testing.T) {
			if _, err := ParseRoute(in); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("route %q: error %v does not contain %q", in, err, want)
			}
		})
	}
}

func FuzzParseWindow(f *testing.F) {
	f.Add("1000 per minute by ip+agent")
	f.Add("5 per 2 hours by session or ip")
	f.Fuzz(func(t *testing.T, s string) {
		w, err := ParseWindow(s)
		if err != nil {
			return
		}
		again, err := ParseWindow(w.String())
		if err != nil || again.String() != w.String() || again.Per != w.Per || again.Limit != w.Limit {
			t.Errorf("%q reads as %q, and that as %q, %v", s, w, again, err)
		}
	})
}
