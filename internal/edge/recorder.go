package edge

import (
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/watch"
)

// openRecorder keeps statistics of recent traffic for the admin listener. Without that listener
// nothing could read them, and it does nothing.
func openRecorder(o *observing) error {
	if !o.operated {
		return nil
	}
	recorder, err := watch.New(watch.Options{})
	if err != nil {
		return cli.Fail(err, "")
	}
	h := o.hooks
	h.decisions = append(h.decisions, recorder.Observe)
	h.shadows = append(h.shadows, recorder.Shadow)
	h.candidates = append(h.candidates, recorder.Candidate)
	h.settled = append(h.settled, recorder.Settled)
	h.held = append(h.held, recorder.Held)
	h.spent = append(h.spent, recorder.Spent)
	h.policies = append(h.policies, func(s live.State) { recorder.Declare(s.Policy) })
	h.candidateLoaded = append(h.candidateLoaded, recorder.ResetCandidate)
	h.admin = append(h.admin, func(a *admin.Options) { a.Recorder = recorder })
	return nil
}
