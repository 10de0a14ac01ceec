package answer

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
)

// maxUsageTime is how long an answer of usage reads windows before it leaves the rest out.
const maxUsageTime = time.Second

// usageBody is the body of an answer to a route of a limiter that answers usage.
type usageBody struct {
	Now     int64         `json:"now"`  // Unix seconds by the clock that counts
	Time    string        `json:"time"` // the same in RFC 3339
	Windows []usageWindow `json:"windows"`
	LeftOut int           `json:"left_out"` // windows that were not read
}

// A usageWindow is one window of the caller. Used, Remaining and Reset are null if State is
// "unknown" or "incomplete". A limit in flight has neither a length nor a reset: they are null.
type usageWindow struct {
	Limiter    string   `json:"limiter"`
	Window     string   `json:"window"` // as a policy spells it
	PerSeconds *int64   `json:"per_seconds"`
	Limit      int64    `json:"limit"` // for this caller
	Used       *int64   `json:"used"`
	Remaining  *int64   `json:"remaining"`
	Reset      *int64   `json:"reset"`
	ResetTime  *string  `json:"reset_time"` // in RFC 3339
	CountedBy  []string `json:"counted_by"` // the key sources that count this caller
	Shared     bool     `json:"shared"`     // all callers together
	Exempt     bool     `json:"exempt"`     // never refused
	Penalty    bool     `json:"penalty"`    // the limiter refuses the caller everything
	InFlight   bool     `json:"in_flight,omitempty"`
	State      string   `json:"state"` // "counted", "local", "unknown" or "incomplete"
	Needs      string   `json:"needs,omitempty"`
}

// answerUsage answers an admitted request of a limiter that answers usage. Only GET and HEAD ask
// for it.
func (j *Judge) answerUsage(ctx context.Context, q *Question, a *Answer) {
	if q.Method != "GET" && q.Method != "HEAD" {
		fields, body := j.Error(q.accept(), statusMethodNotAllowed, "Method Not Allowed", "method_not_allowed",
			"This address shows what is left of your limits. Only GET and HEAD are allowed here.")
		r := refusal{body, append(fields, Field{"Allow", "GET, HEAD"})}
		a.Status, a.refusal = statusMethodNotAllowed, &r
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxUsageTime)
	defer cancel()
	u := j.decider.Usage(ctx, a.scratch.Caller(q.Caller), func(l *weir.Limiter) bool {
		source, _ := j.unverified(l, q.Caller)
		return source == ""
	})
	r := newRefusal("application/json", usageJSON(a.Decision.Now, u))
	a.Status, a.refusal = statusOK, &r
}

func usageJSON(now int64, u weir.Usage) []byte {
	body := usageBody{Now: now, Time: rfc3339(now), Windows: []usageWindow{}, LeftOut: u.LeftOut}
	for i := range u.Windows {
		w := &u.Windows[i]
		out := usageWindow{
			Limiter: w.Limiter.Name, Window: w.Window.String(), Limit: w.Limit, InFlight: w.Window.InFlight,
			CountedBy: w.CountedBy, Shared: w.Everyone, Exempt: w.Exempt, Penalty: w.Penalty, State: "counted", Needs: w.Missing,
		}
		if per := int64(w.Window.Per / time.Second); !out.InFlight {
			out.PerSeconds = &per
		}
		switch {
		case w.Missing != "":
			out.State = "incomplete"
		case w.Unknown:
			out.State = "unknown"
		default:
			if w.Local {
				out.State = "local"
			}
			out.Used, out.Remaining = &w.Count, &w.Remaining
			if at := rfc3339(w.Reset); !out.InFlight {
				out.Reset, out.ResetTime = &w.Reset, &at
			}
		}
		body.Windows = append(body.Windows, out)
	}
	return encode(body)
}

func rfc3339(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }
