package replay

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/target"
)

func getFor(peer, path string) string {
	return fmt.Sprintf(`%s %d.000 "GET %s HTTP/1.1" "-" "-" "-"`, peer, noon, path)
}

// The parameters of a route are in the logged path, also of a path that was seen before, of a
// caller that waits, and of a limiter in shadow whose route names them otherwise.
func TestALogIsCountedByTheParametersOfItsPaths(t *testing.T) {
	l := limiterOf(t, "tenants", "2 per minute by path:tenant")
	l.Routes = []weir.Route{{Path: "/t/{tenant}/", Prefix: true}}
	shadow := limiterOf(t, "users", "1 per minute by path:user")
	shadow.Routes, shadow.Mode = []weir.Route{{Path: "/t/{x}/{user}"}}, weir.Shadow
	o := Options{Policy: policyOf(l, shadow), Forwarded: -1, Paced: true}
	var lines []string
	for _, path := range []string{"/t/one/a", "/t/two/b", "/t/ONE/a", "/t/one/a?x", "/t/two.json", "/t/%6Fne/c", "/t/one/a", "/t/two/b", "/t/three"} {
		lines = append(lines, getFor("192.0.2.1", path))
	}
	out := fromLog(t, o, lines...)
	tenants, users := out.Policy.Limiters[0], out.Policy.Limiters[1]
	// one: 5 of which 3 are refused; two: 3, 1 refused; three: 1
	if tenants.Requests != 9 || tenants.Refused != 4 || tenants.Windows[0].Callers.N != 3 {
		t.Errorf("tenants: %d requests, %d refused, %d callers", tenants.Requests, tenants.Refused, tenants.Windows[0].Callers.N)
	}
	// a: 4 of which 3 are refused; b: 2, 1 refused; c: 1
	if users.Requests != 7 || users.Refused != 4 || users.Windows[0].Callers.N != 3 {
		t.Errorf("users: %d requests, %d refused, %d callers", users.Requests, users.Refused, users.Windows[0].Callers.N)
	}
	if got := names(tenants); len(got) != 2 || !regexp.MustCompile(`^path:tenant #[0-9a-f]{8}$`).MatchString(got[0]) {
		t.Errorf("worst %q", got)
	}
	if len(out.Log.Lacks) != 0 {
		t.Errorf("lacks %+v", out.Log.Lacks)
	}
}

// Paths are read as the server does that forwards them as sent: what it counts by one limiter, and
// what it answers 400.
func TestALogOfPathsAsSentIsCountedByTheirFoldedForm(t *testing.T) {
	tenants := limiterOf(t, "tenants", "2 per minute by path:tenant")
	tenants.Routes = []weir.Route{{Path: "/t/{tenant}/", Prefix: true}}
	rest := limiterOf(t, "rest", "100 per minute by ip")
	rest.Routes = []weir.Route{{Path: "/", Prefix: true}}
	lines := []string{}
	for _, path := range []string{
		"/t/a%2Fb/x", "/t/%61/x%2fy", "/t/%2561/x?q=1", "/T/a/x", // a: 4, 2 refused
		"/t//a/x", "/x/..%2ft/a", "//t/a/x", // answered 400
		"/t/" + strings.Repeat("long", 100), "/t/" + strings.Repeat("long", 100) + "%2Fx", // 2
	} {
		lines = append(lines, getFor("192.0.2.1", path))
	}
	for paths, want := range map[target.Paths][3]int64{target.AsSent: {6, 2, 3}, target.Strict: {4, 1, 5}} {
		out := fromLog(t, Options{Policy: policyOf(tenants, rest), Forwarded: -1, Paths: paths}, lines...)
		got := [3]int64{out.Policy.Limiters[0].Requests, out.Policy.Limiters[0].Refused, out.Policy.Limiters[1].Requests}
		if got != want {
			t.Errorf("paths %v: %d requests of tenants, %d refused, %d of the rest, want %v", paths, got[0], got[1], got[2], want)
		}
	}
}

func TestNoFieldOfALogHoldsAParameter(t *testing.T) {
	_, err := New(Options{Policy: policyOf(limiterOf(t, "all", "1 per minute by ip")), Forwarded: -1, Keys: map[string]int{"path:tenant": 1}})
	if err == nil || !strings.Contains(err.Error(), "part of the path") {
		t.Error(err)
	}
}
