package edge

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/live"
)

// A sidAdvice warns of session tokens without a sid, each of which is a budget of its own. It keeps
// its warnings until a policy counts by session: under others they are not true.
type sidAdvice struct {
	log *slog.Logger

	mu      sync.Mutex
	counted bool // the policy in force counts by session
	kept    []Warning
}

// refreshed is for SessionsOptions.Refreshed.
func (a *sidAdvice) refreshed(issuer string) {
	a.warn("two sessions of one subject came, and their tokens have no sid: each token has a budget of its own, so a refreshed token "+
		"is a new budget; give all tokens of a session the same sid", "issuer", issuer)
}

// withoutSid is for SessionsOptions.WithoutSid.
func (a *sidAdvice) withoutSid(tokens int) {
	a.warn("no session token that came has a sid, so each token has a budget of its own: is a refreshed token a new visitor? "+
		"If not, give all tokens of a session the same sid", "tokens", tokens)
}

func (a *sidAdvice) warn(message string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept = append(a.kept, Warning{message, args})
	a.flush()
}

// policyChanged is a policies hook.
func (a *sidAdvice) policyChanged(s live.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted = slices.ContainsFunc(s.Policy.Limiters, countsBySession)
	a.flush()
}

func (a *sidAdvice) flush() {
	if !a.counted {
		return
	}
	for _, w := range a.kept {
		a.log.Warn(w.Message, w.Args...)
	}
	a.kept = nil
}

// countsBySession reports whether l counts by session itself, and not by a claim of it.
func countsBySession(l weir.Limiter) bool {
	return slices.ContainsFunc(l.Rows(), func(w weir.Window) bool { return w.Key.Uses(identity.Session) })
}
