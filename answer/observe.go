package answer

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
)

// An Outcome is the result for one request.
type Outcome uint8

const (
	// Unlimited requests are covered by no limiter.
	Unlimited Outcome = iota
	// Admitted requests go on to their handler.
	Admitted
	// Refused requests are answered 429.
	Refused
	// Unauthenticated requests are answered 401.
	Unauthenticated
	// Unavailable requests are answered 503, because the store did not answer.
	Unavailable
	// Denied requests are answered 403: the limiter denies the caller.
	Denied
	// Misdirected requests are for a host that is not served where they arrive. They are answered
	// 421 (RFC 9110, section 15.5.20), and no limiter covers them. Only an Observation has this
	// outcome; that of the Answer is Unlimited.
	Misdirected
)

// String returns the outcome as logs and metrics spell it.
func (o Outcome) String() string {
	switch o {
	case Unlimited:
		return "unlimited"
	case Admitted:
		return "admitted"
	case Refused:
		return "refused"
	case Unauthenticated:
		return "unauthenticated"
	case Unavailable:
		return "store_unavailable"
	case Denied:
		return "denied"
	case Misdirected:
		return "misdirected"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// An Observation describes one decision to metrics, traces and dashboards, whichever door the
// request came through. Who and Caller identify the sender. They are for what shows callers to an
// operator, as keyed hashes, and never for the label of a metric or a log line.
//
// If Outcome is Unlimited, all fields but Door are zero; if it is Misdirected, all but Door and
// Context. If it is Denied, no window was read: Window and Who are nil, and Limiter is the one that
// denied.
type Observation struct {
	Door    string // Options.Door
	Outcome Outcome
	Status  int           // of the answer; 0: the request goes on to its handler
	Latency time.Duration // from the arrival of the request to the decision

	Limiter  string         // of the binding window
	Window   *weir.Window   // the binding one; read only
	Decision *weir.Decision // read only
	Denial   string         // the id in the 429 or 403; empty: none
	Who      []byte         // the sender as the binding window counts it (weir.Scratch.Who)
	Caller   weir.Keys      // the sender

	// Context is the one that Judge.Answer got. A tracer finds the request's span in it.
	Context context.Context
}

// A Spending is what an admitted request has cost, as the limiter of its Observation counted it.
type Spending struct {
	Limiter  string
	Decision *weir.Decision // read only
	Who      []byte         // as in the Observation
	Reserved int64          // units that were charged before the request was served
	Used     int64          // units that it has cost, and is charged unless the store has failed
}

// reportSpent calls Options.Spent once the cost of the request is known. The binding window may be
// another one by now: who sent the request is what observe has reported.
func (j *Judge) reportSpent(a *Answer) {
	if !a.spending || a.scratch.Awaits()&headSettles != 0 || a.response.pending {
		return
	}
	j.endSpending(a)
}

// endSpending is reportSpent for a request that has ended.
func (j *Judge) endSpending(a *Answer) {
	if !a.spending {
		return
	}
	l := a.observed.Limiter
	reserved, used, ok := a.scratch.Cost(l)
	if !ok {
		return
	}
	a.spending = false
	if used >= 0 {
		j.options.Spent(Spending{Limiter: l.Name, Decision: &a.Decision, Who: a.scratch.Who(&a.observed), Reserved: reserved, Used: used})
	}
}

// observe calls Options.Observe for a request that a limiter covers. caller is the one of the
// decision.
func (j *Judge) observe(ctx context.Context, a *Answer, start time.Time, caller weir.Keys) {
	if j.options.Observe == nil {
		return
	}
	o := Observation{
		Door: j.options.Door, Outcome: a.Outcome, Status: a.Status, Latency: j.elapsed(start),
		Limiter: a.Decision.Limiter().Name, Decision: &a.Decision, Denial: a.denial, Caller: caller, Context: ctx,
	}
	if all := a.Decision.Standings(); len(all) > 0 {
		o.Window, o.Who = all[0].Window, a.scratch.Who(&all[0])
		if j.options.Spent != nil && a.Outcome == Admitted && a.Decision.Cost > 0 {
			a.observed, a.spending = all[0], true
		}
	}
	j.options.Observe(o)
}

// observeUnlimited calls Options.Observe for a request that no limiter covers.
func (j *Judge) observeUnlimited(ctx context.Context, q *Question) {
	if j.options.Observe == nil {
		return
	}
	o := Observation{Door: j.options.Door}
	if q.Misdirected {
		o.Outcome, o.Context = Misdirected, ctx
	}
	j.options.Observe(o)
}
