package edge

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/telemetry"
	"github.com/weirlimit/weir/policyfile"
)

// A tokenFile is the file of --token-file. It logs each change of it, and warns if it does not fit
// the policy in force.
type tokenFile struct {
	*identity.TokenFile
	path string
	log  *slog.Logger
	now  func() time.Time

	mu      sync.Mutex
	version string      // of policy; empty: none is in force yet
	policy  weir.Policy // in force
}

// openTokenFile opens the file, and follows it until own is closed.
func openTokenFile(ctx context.Context, c *Config, h *hooks, own *parts) (*tokenFile, error) {
	f := &tokenFile{path: c.TokenFile, log: c.Log, now: c.Now}
	if f.now == nil {
		f.now = time.Now
	}
	tokens, err := identity.OpenTokenFile(c.TokenFile, identity.TokenFileOptions{Failed: f.failed, Changed: f.changed})
	if err != nil {
		return nil, cli.Fail(fmt.Errorf("--token-file: %w", err),
			fileHint(err, "a line for each token: ID SHA256 [workspace=NAME] [plan=NAME] [expires=TIME]; 'weir token hash' prints one, and 'weir token check FILE' reports every problem"))
	}
	f.TokenFile = tokens
	h.policies = append(h.policies, f.policyChanged)
	own.run(ctx, tokens.Watch)
	return f, nil
}

// row returns the start-up line of the file's tokens.
func (f *tokenFile) row() string {
	return fmt.Sprintf("verified by --token-file %s, %s", filepath.Base(f.path), cli.Count(f.Len(), "token"))
}

// state returns what a scrape reads of the file.
func (f *tokenFile) state() telemetry.TokenFileState {
	return telemetry.TokenFileState{Tokens: f.Len(), OK: f.Valid()}
}

func (f *tokenFile) failed(err error) {
	f.log.Error("cannot read the changed token file; the last valid tokens stay in force", "file", f.path, "error", err)
}

func (f *tokenFile) changed(c identity.TokenFileChange) {
	if c.ValidAgain {
		f.log.Info("the token file is valid again", "file", f.path, "tokens", c.Tokens)
	}
	if c.Added+c.Removed+c.Changed == 0 {
		return
	}
	figures := []any{"file", f.path, "tokens", c.Tokens, "added", c.Added, "removed", c.Removed, "changed", c.Changed}
	if c.Tokens == 0 {
		f.log.Warn("the changed token file is in force, and has no token: each token is refused", figures...)
	} else {
		f.log.Info("the changed token file is in force", figures...)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.version != "" {
		logWarnings(f.log, f.warnings())
	}
}

// policyChanged is a policies hook. It warns once for each policy that comes into force.
func (f *tokenFile) policyChanged(s live.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Version == f.version {
		return
	}
	f.version, f.policy = s.Version, s.Policy
	logWarnings(f.log, f.warnings())
}

// warnings returns the warning of a file without tokens, if the policy requires them, and that of
// plans that the policy does not have. f.mu must be held.
func (f *tokenFile) warnings() []Warning {
	if f.Len() == 0 {
		return f.closedWarnings()
	}
	unlisted := UnlistedPlans(f.policy, f.All(), f.now())
	if len(unlisted) == 0 {
		return nil
	}
	return []Warning{{"tokens have plans that no limiter of the policy has, so the windows' own limits hold for them", []any{"file", f.path, "plans", describePlans(unlisted)}}}
}

// closedWarnings returns a warning of the limiters that reject everybody, because they require a
// token and the file has none. f.mu must be held.
func (f *tokenFile) closedWarnings() []Warning {
	var closed []string
	for i := range f.policy.Limiters {
		if l := &f.policy.Limiters[i]; l.Requires == identity.Token && l.Mode != weir.Shadow {
			closed = append(closed, l.Name)
		}
	}
	if len(closed) == 0 {
		return nil
	}
	return []Warning{{"limiters require a token and the token file has none, so they let nobody in: add the line that 'weir token hash --id NAME' prints for each key; it counts within a second",
		[]any{"limiters", strings.Join(closed, ", "), "file", f.path}}}
}

// An UnlistedPlan is a plan of tokens that no limiter with plans by token has. The windows' own
// limits hold for its tokens.
type UnlistedPlan struct {
	Name   string
	Tokens int    // that have not expired
	Hint   string // the plan that is probably meant, as a question; empty: none is close
}

// UnlistedPlans returns the plans of tokens that no limiter of a policy has, those of most tokens
// first. There are none under a policy without plans by token: it has the same limits for all.
func UnlistedPlans(p weir.Policy, tokens iter.Seq[identity.StoredToken], now time.Time) []UnlistedPlan {
	listed := make(map[string]bool)
	for i := range p.Limiters {
		if plans := &p.Limiters[i].Plans; plans.By == identity.Token {
			for _, plan := range plans.List {
				listed[plan.Name] = true
			}
		}
	}
	if len(listed) == 0 {
		return nil
	}
	counts := make(map[string]int)
	for t := range tokens {
		if t.Plan != "" && !listed[t.Plan] && !t.HasExpired(now) {
			counts[t.Plan]++
		}
	}
	names := slices.Sorted(maps.Keys(listed))
	var all []UnlistedPlan
	for name, n := range counts {
		all = append(all, UnlistedPlan{Name: name, Tokens: n})
	}
	slices.SortFunc(all, func(a, b UnlistedPlan) int {
		return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), strings.Compare(a.Name, b.Name))
	})
	for i := range all[:min(len(all), MaxUnlisted)] {
		all[i].Hint = policyfile.DidYouMean(all[i].Name, names)
	}
	return all
}

// MaxUnlisted is how many unlisted plans a warning names.
const MaxUnlisted = 10

// describePlans names plans with the number of their tokens.
func describePlans(all []UnlistedPlan) string {
	var parts []string
	for i, p := range all {
		if i == MaxUnlisted {
			parts = append(parts, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		text := fmt.Sprintf("%q of %s", p.Name, cli.Count(p.Tokens, "token"))
		if p.Hint != "" {
			text += " (" + p.Hint + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
