package edge

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/memstore"
)

// CandidateShare is the divisor of Config.Memory for the counts of a candidate policy, which are
// less important than those of the policy in force.
const CandidateShare = 10

// A policy is the policy in force, which follows its file, and the candidate beside it.
type policy struct {
	*live.Policy
	start   string // the name of the policy at the start
	manager *manager
}

// openPolicy calls the hooks for the policy at the start, and replaces it when its file changes
// until ctx ends. audit logs each change before it is made.
func openPolicy(ctx context.Context, c *Config, k *counter, m *manager, audit *admin.Audit, h *hooks, own *parts) (*policy, error) {
	o := live.Options{Reader: c.Reader, Check: k.store.check, Before: audit.PolicyChange, OnState: h.policyChanged, Log: c.Log}
	if err := openCandidate(c, k, &o, h, own); err != nil {
		return nil, err
	}
	inForce, err := live.New(c.Policy, k.Swap, o)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	h.policyChanged(inForce.State())
	h.policies = append(h.policies, func(s live.State) { m.send(m.serving(s)) })
	own.run(ctx, inForce.Watch)
	return &policy{inForce, c.Policy.Path, m}, nil
}

// openCandidate evaluates a candidate policy beside the one in force, if there is one. It counts in
// memory of its own: on this machine only, and from nothing at each start.
func openCandidate(c *Config, k *counter, o *live.Options, h *hooks, own *parts) error {
	if c.Candidate == "" {
		return nil
	}
	store, err := memstore.New(memstore.Options{Memory: c.Memory / CandidateShare, Log: c.Log.With("counts of", "the candidate policy")})
	if err != nil {
		return noCounts(c.Data, err)
	}
	own.own(store.Close)
	o.Candidate = c.Candidate
	o.Evaluate = func(p *weir.Policy) error {
		if err := k.SetCandidate(p, store); err != nil {
			return err
		}
		for _, call := range h.candidateLoaded {
			call()
		}
		if p != nil {
			logWarnings(c.Log, CandidateWarnings(*p, c))
		}
		return nil
	}
	return nil
}

// reload reads the policy's file again. The log has the result, and by, which asked for it.
func (p *policy) reload(ctx context.Context, by string) {
	done := p.manager.reloading()
	defer done()
	if err := p.Reload(ctx, by); errors.Is(err, live.ErrFixed) {
		p.manager.log.Warn(by+" changes nothing", "error", err)
	}
}

// rows returns the rows of the policy in force and of the candidate.
func (p *policy) rows() []Row {
	all := []Row{{"policy", fmt.Sprintf("%s, %s", p.start, cli.Count(len(p.State().Policy.Limiters), "limiter"))}}
	state, ok := p.Candidate()
	switch {
	case !ok:
	case state.Source == "":
		all = append(all, Row{"candidate", fmt.Sprintf("%s: cannot be read yet, see the log; it is read again when it changes", state.Path)})
	default:
		all = append(all, Row{"candidate", fmt.Sprintf("%s, %s, evaluated on the same requests and never enforced", state.Path, cli.Count(len(state.Policy.Limiters), "limiter"))})
	}
	return all
}
