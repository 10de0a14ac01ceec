package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/memstore"
)

// candidateShare is the part of --memory that the candidate's counts may take at most: they are beside those that matter.
const candidateShare = 10

// candidateOptions has a candidate policy evaluated beside the one in force, counted in memory of its own: on this machine alone,
// from nothing at each start. changed, if set, is called when another candidate takes its place.
func (e *edge) candidateOptions(f *serveFlags, log *slog.Logger, o *live.Options, changed func()) error {
	if f.candidate == "" {
		return nil
	}
	store, err := memstore.New(memstore.Options{Memory: int64(f.memory) / candidateShare, Log: log.With("counts of", "the candidate policy")})
	if err != nil {
		return storeFailure(f, err)
	}
	e.closers = append(e.closers, store.Close)
	o.Candidate = f.candidate
	o.Evaluate = func(p *weir.Policy) error {
		if err := e.decider.SetCandidate(p, store); err != nil {
			return err
		}
		if changed != nil {
			changed()
		}
		return nil
	}
	return nil
}

// checkCandidate finds what the flags say of a candidate and should not.
func (f *serveFlags) checkCandidate(cmd *cobra.Command) error {
	if f.candidate == "" {
		return nil
	}
	if least := cli.Size(candidateShare * memstore.MinMemory); f.memory < least {
		return cli.UsageError(fmt.Sprintf("such as --memory %v, or leave the candidate out", &least),
			"%s counts in a tenth of %s, and %v leaves it too little: want %v or more", cli.GivenAs(cmd, "candidate"), cli.GivenAs(cmd, "memory"), &f.memory, &least)
	}
	if f.candidate == "-" {
		return cli.UsageError("put it in a file; it is read again when that changes", "%s wants a file, not standard input", cli.GivenAs(cmd, "candidate"))
	}
	return nil
}

// candidateLine is what start-up says of the candidate; empty where there is none.
func candidateLine(p *live.Policy) string {
	state, ok := p.Candidate()
	switch {
	case !ok:
		return ""
	case state.Source == "":
		return fmt.Sprintf("%s: cannot be read yet, see the log; it is looked at again when it changes", state.Path)
	}
	return fmt.Sprintf("%s, %s, evaluated on the same requests and never enforced", state.Path, cli.Count(len(state.Policy.Limiters), "limiter"))
}
