package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/policyfile"
)

// A policyState is how it stands with a policy. Times are Unix seconds; 0: never.
type policyState struct {
	Version  string    `json:"version"` // 8 hex digits; empty: a candidate that was never valid
	Source   string    `json:"source"`  // "contract", "file", "stream" or "posted"; empty: a candidate that was never valid
	Path     string    `json:"path"`    // the file that is watched; empty: none
	Since    int64     `json:"since"`
	By       string    `json:"by"` // who put it in force: "start", "watch", "SIGHUP", "token NAME"
	Limiters int       `json:"limiters"`
	Warnings []problem `json:"warnings"`
	Last     attempt   `json:"last"`
	Text     *string   `json:"text,omitempty"` // as it was read
}

// An attempt is the last one to replace a policy.
type attempt struct {
	At       int64     `json:"at"`
	By       string    `json:"by"`
	OK       bool      `json:"ok"`
	Problems []problem `json:"problems"`
}

// A problem is one of a policy, as 'weir policy check --json' tells it.
type problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1; 0: the file as a whole
	Column  int    `json:"column"` // from 1
	Path    string `json:"path"`
	Value   string `json:"value"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

func problems(all []policyfile.Problem) []problem {
	out := make([]problem, len(all))
	for i, p := range all {
		out[i] = problem(p)
	}
	return out
}

func newPolicyState(s live.State) policyState {
	return policyState{
		Version: s.Version, Source: s.Source, Path: s.Path, Since: unix(s.Since), By: s.By, Limiters: len(s.Policy.Limiters),
		Warnings: problems(s.Warnings),
		Last:     attempt{At: unix(s.Last.At), By: s.Last.By, OK: s.Last.OK, Problems: problems(s.Last.Problems)},
	}
}

// unix is a time in Unix seconds; 0 where it is zero.
func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func (s *Server) showPolicy(w http.ResponseWriter, r *http.Request) {
	tellPolicy(w, r, s.options.Policy.State())
}

func (s *Server) showCandidate(w http.ResponseWriter, r *http.Request) {
	state, ok := s.options.Policy.Candidate()
	if !ok {
		refuse(w, http.StatusNotFound, "no_candidate", "There is no candidate policy; weir serve --candidate FILE has one.")
		return
	}
	tellPolicy(w, r, state)
}

// tellPolicy answers with the text alone, or with all there is to know.
func tellPolicy(w http.ResponseWriter, r *http.Request, state live.State) {
	w.Header().Set("Vary", "Accept")
	if prefersYAML(r) {
		w.Header().Set("Content-Type", typeYAML)
		w.Header().Set("Content-Length", strconv.Itoa(len(state.Text)))
		_, _ = w.Write(state.Text) // whoever asked may be gone
		return
	}
	out := newPolicyState(state)
	text := string(state.Text)
	out.Text = &text
	answer(w, http.StatusOK, out)
}

// postPolicy puts the body in force.
func (s *Server) postPolicy(w http.ResponseWriter, r *http.Request) {
	if !hasType(w, r, typeYAML) {
		return
	}
	text, ok := body(w, r, policyfile.MaxSize)
	if !ok {
		return
	}
	err := s.options.Policy.Post(r.Context(), "token "+who(r), text)
	var invalid *policyfile.Error
	switch {
	case errors.Is(err, ErrAudit):
		tellError(w, err)
	case errors.As(err, &invalid):
		var out struct {
			Error struct {
				Code    string `json:"code"`
				Message string `json:"message"`
			} `json:"error"`
			Problems []problem `json:"problems"`
		}
		out.Error.Code, out.Error.Message = "invalid_policy", fmt.Sprintf("The policy is refused, and what was in force stays so; problems: %d.", len(invalid.Problems))
		out.Problems = problems(invalid.Problems)
		answer(w, http.StatusUnprocessableEntity, out)
	case err != nil: // the request has ended before its turn came
		refuse(w, http.StatusServiceUnavailable, "busy", "Another policy is being put in force; try again.")
	default:
		tellPolicy(w, r, s.options.Policy.State())
	}
}
