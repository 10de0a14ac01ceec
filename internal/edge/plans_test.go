package edge

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/live"
)

func TestPlansThatNobodyCanHaveAreWarnedOfOnceForEachPolicy(t *testing.T) {
	state := func(version, by string) live.State {
		p := weir.Policy{Limiters: []weir.Limiter{{Name: "api"}}}
		if by != "" {
			p.Limiters[0].Plans = weir.Plans{By: by, List: []weir.Plan{{Name: "gold", Rates: []weir.Rate{{Limit: 9, Per: time.Minute}}}}}
		}
		return live.State{Version: version, Policy: p}
	}
	for by, flag := range map[string]string{"claim:plan": "--jwt-key or --jwks", "token": "--tokens or --token-file", "header:X-Plan": "--trusted-proxies", "": ""} {
		var text bytes.Buffer
		nobody, err := identity.New(identity.Options{})
		if err != nil {
			t.Fatal(err)
		}
		warn := warnOfPlans(slog.New(slog.NewTextHandler(&text, nil)), nobody)
		for _, version := range []string{"one", "one", "two"} {
			warn(state(version, by))
		}
		if n, want := strings.Count(text.String(), "limiter=api by="+by), 2; by != "" && (n != want || !strings.Contains(text.String(), flag)) {
			t.Errorf("by %q: %d warnings, want %d, with %q:\n%s", by, n, want, flag, &text)
		}
		if by == "" && text.Len() > 0 {
			t.Errorf("a policy without plans: %s", &text)
		}
	}
	var text bytes.Buffer
	proxied, err := identity.New(identity.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	if warnOfPlans(slog.New(slog.NewTextHandler(&text, nil)), proxied)(state("one", "header:X-Plan")); text.Len() > 0 {
		t.Errorf("a proxy is trusted: %s", &text)
	}
}
