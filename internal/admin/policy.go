package admin

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/policyfile"
)

// A policyState is the state of a policy. Times are Unix seconds; 0 means never. Version and Source
// are empty for a candidate that was never valid.
type policyState struct {
	Version  string    `json:"version"` // 8 hex digits
	Source   string    `json:"source"`  // "contract", "file", "stream" or "posted"
	Path     string    `json:"path"`    // the file that is watched; empty: none
	Since    int64     `json:"since"`
	By       string    `json:"by"` // what put it in force: "start", "watch", "SIGHUP", "token NAME"
	Limiters int       `json:"limiters"`
	Warnings []problem `json:"warnings"`
	Last     attempt   `json:"last"`
	Text     *string   `json:"text,omitempty"` // the text of the file
}

// An attempt is the last attempt to replace a policy.
type attempt struct {
	At       int64     `json:"at"`
	By       string    `json:"by"`
	OK       bool      `json:"ok"`
	Problems []problem `json:"problems"`
}

// A problem is a problem of a policy, in the format of 'weir policy check --json'.
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

// unix returns a time in Unix seconds, and 0 for the zero time.
func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func (s *Server) showPolicy(w http.ResponseWriter, r *http.Request) {
	writePolicy(w, r, s.options.Policy.State())
}

func (s *Server) showCandidate(w http.ResponseWriter, r *http.Request) {
	state, ok := s.options.Policy.Candidate()
	if !ok {
		refuse(w, http.StatusNotFound, "no_candidate", "There is no candidate policy; weir serve --candidate FILE sets one.")
		return
	}
	writePolicy(w, r, state)
}

// writePolicy answers with the policy's text if the client prefers YAML, and else with its state.
func writePolicy(w http.ResponseWriter, r *http.Request, state live.State) {
	w.Header().Set("Vary", "Accept")
	if prefersYAML(r) {
		w.Header().Set("Content-Type", typeYAML)
		w.Header().Set("Content-Length", strconv.Itoa(len(state.Text)))
		_, _ = w.Write(state.Text) // the client may be gone
		return
	}
	out := newPolicyState(state)
	text := string(state.Text)
	out.Text = &text
	answer(w, http.StatusOK, out)
}

// postPolicy puts the body in force. The query may have a reason, why, for the audit log.
func (s *Server) postPolicy(w http.ResponseWriter, r *http.Request) {
	why, ok := whyOf(w, r)
	if !ok {
		return
	}
	if !hasType(w, r, typeYAML) {
		return
	}
	text, ok := body(w, r, policyfile.MaxSize)
	if !ok {
		return
	}
	err := s.options.Policy.Post(r.Context(), live.Author{By: "token " + requester(r).Name, Why: why}, text)
	var invalid *policyfile.Error
	switch {
	case errors.Is(err, ErrAudit):
		writeError(w, err)
	case errors.As(err, &invalid):
		var out struct {
			Error struct {
				Code    string `json:"code"`
				Message string `json:"message"`
			} `json:"error"`
			Problems []problem `json:"problems"`
		}
		out.Error.Code, out.Error.Message = "invalid_policy", fmt.Sprintf("The policy is invalid, and the one in force stays; problems: %d.", len(invalid.Problems))
		out.Problems = problems(invalid.Problems)
		answer(w, http.StatusUnprocessableEntity, out)
	case err != nil: // the request has ended while it waited for another change
		refuse(w, http.StatusServiceUnavailable, "busy", "Another policy is being put in force; try again.")
	default:
		writePolicy(w, r, s.options.Policy.State())
	}
}

// whyOf returns the reason in a query that may have nothing else. If ok is false, it has refused
// the request.
func whyOf(w http.ResponseWriter, r *http.Request) (why string, ok bool) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_query", "The query cannot be read: "+err.Error()+".")
		return "", false
	}
	for name, values := range q {
		if name != "why" || len(values) != 1 {
			refuse(w, http.StatusBadRequest, "invalid_query", fmt.Sprintf("Query parameter %.40q: why is allowed, once.", name))
			return "", false
		}
		why = strings.TrimSpace(values[0])
	}
	if err := CheckWhy(why); err != nil {
		refuse(w, http.StatusUnprocessableEntity, "invalid_why", "why: "+err.Error()+".")
		return "", false
	}
	return why, true
}
