package edge

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/live"
)

// A token without a sid is a new budget only if the policy counts by session. A policy that comes
// into force later may.
func TestTokensWithoutASidAreWarnedOfIfThePolicyCountsBySession(t *testing.T) {
	by := func(key weir.Key) live.State {
		return live.State{Policy: weir.Policy{Limiters: []weir.Limiter{{Name: "api", Requires: "session", Windows: []weir.Window{{Limit: 9, Per: time.Minute, Key: key}}}}}}
	}
	inFlight := live.State{Policy: weir.Policy{Limiters: []weir.Limiter{{Name: "api", InFlight: weir.InFlight{Limit: 2, Key: weir.Key{{"session"}}}}}}}
	for _, c := range []struct {
		name   string
		states []live.State // in force before the tokens come, and after
		want   int          // warnings of each kind
	}{
		{"by session", []live.State{by(weir.Key{{"session", "ip"}})}, 1},
		{"in flight by session", []live.State{inFlight}, 1},
		{"by a claim", []live.State{by(weir.Key{{"claim:sub", "ip"}})}, 0},
		{"by address", []live.State{by(weir.Key{{"ip"}})}, 0},
		{"by session later", []live.State{by(weir.Key{{"ip"}}), by(weir.Key{{"session"}}), by(weir.Key{{"session"}})}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var text bytes.Buffer
			a := &sidAdvice{log: slog.New(slog.NewTextHandler(&text, nil))}
			a.policyChanged(c.states[0])
			a.refreshed("https://id.example")
			a.withoutSid(20)
			for _, s := range c.states[1:] {
				a.policyChanged(s)
			}
			for _, words := range []string{"two sessions of one subject", "is a refreshed token a new visitor"} {
				if n := strings.Count(text.String(), words); n != c.want {
					t.Errorf("%d warnings that say %q, want %d:\n%s", n, words, c.want, &text)
				}
			}
		})
	}
}
