package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/denial"
)

// A Denial explains one refusal. It has the kinds of the caller's keys but not their values,
// except for the public id of a token.
type Denial struct {
	Limiter string `json:"limiter"`
	Window  string `json:"window"` // as it was in the policy then
	Kinds   string `json:"kinds"`
	Token   string `json:"token,omitempty"`
	Plan    string `json:"plan,omitempty"` // the caller's plan then, if the limiter had plans
	Limit   int64  `json:"limit"`          // the limit that applied then
	Count   int64  `json:"count"`
	At      int64  `json:"at"`    // Unix seconds
	Reset   int64  `json:"reset"` // 0 if InFlight
	// InFlight means that the limit in flight refused it: Count and Limit are of requests under
	// way.
	InFlight bool `json:"in_flight"`
	// Denied means that the limiter denied the caller: there is no window, limit, count and reset.
	Denied bool `json:"denied"`
	// DeniedBy is the item of the limiter's deny that has the caller's address, with the network
	// for a file of networks: "@blocked.txt (198.51.100.0/24)". It is empty if the token is denied.
	DeniedBy string `json:"denied_by,omitempty"`
	// Penalty means that the limiter's penalty refused it, and ends at Reset or before.
	Penalty bool   `json:"penalty"`
	Policy  string `json:"policy"`          // the version in force then
	Same    bool   `json:"policy_in_force"` // whether that version is in force now
	Line    string `json:"line,omitempty"`  // file:line of the limiter in the policy now
	// Reads has the windows of the limiter now, if the policy has changed.
	Reads   string `json:"reads,omitempty"`
	Changed string `json:"changed,omitempty"` // what has changed since, in words
}

// showDenial answers GET /denials/{id}.
func (s *Server) showDenial(w http.ResponseWriter, r *http.Request) {
	if s.options.Denials == nil {
		refuse(w, http.StatusNotFound, "no_denials", "This server does not add ids to refusals.")
		return
	}
	f, err := s.options.Denials(r.PathValue("id"))
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, "invalid_denial", err.Error())
		return
	}
	answer(w, http.StatusOK, s.explain(f))
}

func (s *Server) explain(f denial.Facts) Denial {
	x := Denial{Limiter: f.Limiter, Window: f.Window, Limit: f.Limit, Count: f.Count, At: f.At, Reset: f.Reset, InFlight: f.InFlight, Denied: f.Denied, Penalty: f.Penalty, Policy: f.Policy}
	var kinds []string
	for _, c := range f.Callers {
		if c.IsPlan() {
			x.Plan = string(c.Value)
			continue
		}
		if c.IsDeny() {
			x.DeniedBy = string(c.Value)
			continue
		}
		kinds = append(kinds, c.Source)
		if weir.SourceOf(c.Source).Public && !c.Digest {
			x.Token = string(c.Value)
		}
	}
	x.Kinds = strings.Join(kinds, "+")
	state := s.options.Policy.State()
	x.Same = state.Version == f.Policy
	i := slices.IndexFunc(state.Policy.Limiters, func(l weir.Limiter) bool { return l.Name == f.Limiter })
	if i < 0 {
		x.Changed = "the policy has changed since, and no longer has this limiter"
		return x
	}
	if i < len(state.Lines) {
		path := state.Path
		if path == "" || state.Source == "posted" {
			path = state.Source
		}
		x.Line = fmt.Sprintf("%s:%d", path, state.Lines[i])
	}
	if x.Same {
		return x
	}
	var now []string
	for _, w := range state.Policy.Limiters[i].Rows() {
		now = append(now, w.String())
	}
	x.Reads = strings.Join(now, ", ")
	if x.Changed = "the policy has changed since"; slices.Contains(now, f.Window) {
		x.Changed += ", and still has this window"
	}
	return x
}
