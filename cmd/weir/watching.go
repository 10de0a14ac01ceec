package main

import (
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/watch"
)

// openRecorder makes what the admin listener shows of the present, and has it told of everything. Without that listener nobody would
// look: e.recorder is nil then.
func (e *edge) openRecorder() error {
	recorder, err := watch.New(watch.Options{})
	if err != nil {
		return cli.Fail(err, "")
	}
	e.recorder = recorder
	r := &e.receivers
	r.decisions = append(r.decisions, func(o httplimit.Observation) {
		recorder.Observe(watch.Event{Limiter: o.Limiter, Outcome: o.Outcome.String(), Decision: o.Decision, Denial: o.Denial, Who: o.Who, Caller: o.Caller})
	})
	r.shadows = append(r.shadows, recorder.Shadow)
	r.candidates = append(r.candidates, recorder.Candidate)
	return nil
}

// watchPolicy has the recorder know which limiters there are.
func (e *edge) watchPolicy(s live.State) {
	if e.recorder != nil {
		e.recorder.Declare(s.Policy)
	}
}

// candidateChanged has the comparison begin anew.
func (e *edge) candidateChanged() {
	if e.recorder != nil {
		e.recorder.ResetCandidate()
	}
}
