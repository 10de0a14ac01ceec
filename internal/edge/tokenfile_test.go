package edge

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/live"
)

// tokenLines returns lines of a token file, one for each plan; an empty one is none.
func tokenLines(plans ...string) string {
	var lines strings.Builder
	for i, plan := range plans {
		fmt.Fprintf(&lines, "t%d %064x", i, i+1)
		if plan != "" {
			fmt.Fprintf(&lines, " plan=%s", plan)
		}
		lines.WriteString("\n")
	}
	return lines.String()
}

// withPlans returns a state with a limiter that has plans.
func withPlans(version, by string, names ...string) live.State {
	l := weir.Limiter{Name: "api"}
	if by != "" {
		l.Plans.By = by
	}
	for _, name := range names {
		l.Plans.List = append(l.Plans.List, weir.Plan{Name: name, Rates: []weir.Rate{{Limit: 9, Per: time.Minute}}})
	}
	return live.State{Version: version, Policy: weir.Policy{Limiters: []weir.Limiter{l}}}
}

func TestEachChangeOfTheTokenFileIsLogged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(tokenLines("gold", "Gold", "", "gold"))
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		c := &Config{TokenFile: path, Log: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "file" {
				return slog.Attr{}
			}
			return a
		}}))}
		var own parts
		h := new(hooks)
		f, err := openTokenFile(t.Context(), c, h, &own)
		if err != nil {
			t.Fatal(err)
		}
		const unlisted = `level=WARN msg="tokens have plans that no limiter of the policy has, so the windows' own limits hold for them" plans=`
		requiring := live.State{Version: "five", Policy: weir.Policy{Limiters: []weir.Limiter{
			{Name: "a", Requires: "token"}, {Name: "b"}, {Name: "c", Requires: "token"}, {Name: "tried", Requires: "token", Mode: weir.Shadow}, {Name: "d", Requires: "session"}}}}
		const nobody = `level=WARN msg="limiters require a token and the token file has none, so they let nobody in: ` +
			`add the line that 'weir token hash --id NAME' prints for each key; it counts within a second" limiters="a, c"` + "\n"
		const didYouMean = ` (did you mean \"gold\"?)`
		for _, step := range []struct {
			name string
			do   func()
			want string
		}{
			{"the start", func() { h.policyChanged(withPlans("one", "token", "gold")) }, unlisted + `"\"Gold\" of 1 token` + didYouMean + "\"\n"},
			{"the same policy", func() { h.policyChanged(withPlans("one", "token", "gold")) }, ""},
			{"another policy", func() { h.policyChanged(withPlans("two", "token", "gold", "Gold")) }, ""},
			{"one without plans by token", func() { h.policyChanged(withPlans("three", "claim:plan", "x")) }, ""},
			{"one with other plans", func() { h.policyChanged(withPlans("four", "token", "silver")) }, unlisted + `"\"gold\" of 2 tokens, \"Gold\" of 1 token"` + "\n"},
			{"a new token", func() { write(tokenLines("silver", "silver", "silver", "silver", "Sliver")) }, `level=INFO msg="the changed token file is in force" tokens=5 added=1 removed=0 changed=4` +
				"\n" + unlisted + `"\"Sliver\" of 1 token (did you mean \"silver\"?)"` + "\n"},
			{"a comment", func() { write("# ours\n" + tokenLines("silver", "silver", "silver", "silver", "Sliver")) }, ""},
			{"a bad line", func() { write("sk_live_0123456789\n") }, `level=ERROR msg="cannot read the changed token file; the last valid tokens stay in force" error="read tokens: ` + path +
				`:1: it has only one word: a line is: ID SHA256 [workspace=NAME] [plan=NAME] [expires=TIME]; the last good version stays in force"` + "\n"},
			{"mended", func() { write(tokenLines("silver", "silver", "silver", "silver", "Sliver")) }, `level=INFO msg="the token file is valid again" tokens=5` + "\n"},
			{"a failed generator", func() { write("") }, `level=WARN msg="the changed token file is in force, and has no token: each token is refused" tokens=0 added=0 removed=5 changed=0` + "\n"},
			{"a policy that requires a token", func() { h.policyChanged(requiring) }, nobody},
			{"a token", func() { write(tokenLines("")) }, `level=INFO msg="the changed token file is in force" tokens=1 added=1 removed=0 changed=0` + "\n"},
			{"none again", func() { write("# none\n") }, `level=WARN msg="the changed token file is in force, and has no token: each token is refused" tokens=0 added=0 removed=1 changed=0` + "\n" + nobody},
			{"tokens again", func() { write(tokenLines("")) }, `level=INFO msg="the changed token file is in force" tokens=1 added=1 removed=0 changed=0` + "\n"},
		} {
			text.Reset()
			step.do()
			time.Sleep(2 * time.Second) // the bubble's
			synctest.Wait()
			if got := text.String(); got != step.want {
				t.Errorf("%s:\n%swant\n%s", step.name, got, step.want)
			}
		}
		if s := f.state(); s.Tokens != 1 || !s.OK {
			t.Errorf("%+v", s)
		}
		if err := own.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAWarningOfPlansIsBounded(t *testing.T) {
	var plans []string
	for i := range 12 {
		plans = append(plans, fmt.Sprintf("p%02d", i))
	}
	tokens, err := identity.ReadTokens(strings.NewReader(tokenLines(plans...) + fmt.Sprintf("old %064x plan=old expires=2020-01-31\n", 99)))
	if err != nil {
		t.Fatal(err)
	}
	all := UnlistedPlans(withPlans("one", "token", "gold").Policy, slices.Values(tokens), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if got := describePlans(all); len(all) != 12 || !strings.HasPrefix(got, `"p00" of 1 token, `) || !strings.HasSuffix(got, `"p09" of 1 token, and 2 more`) {
		t.Errorf("%d: %s", len(all), got)
	}
}

// Metrics have the state of the token file.
func TestMetricsHaveTheStateOfTheTokenFile(t *testing.T) {
	c := testConfig(t, twoPolicy)
	c.TokenFile = filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(c.TokenFile, []byte(tokenLines("", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := opened(t, c)
	if state := s.sources().TokenFile; state == nil || state().Tokens != 2 || !state().OK {
		t.Error("the metrics do not have the token file's state")
	}
}
