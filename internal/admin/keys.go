package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/plaintext"
	"github.com/weirlimit/weir/memstore"
)

// A CallerWindow is the state of one window for a caller.
type CallerWindow struct {
	Limiter string `json:"limiter"`
	Window  string `json:"window"` // in the syntax of a policy

	// Lacks are the key sources that are missing to know the window. If it is not empty, the fields
	// below are not set.
	Lacks string `json:"lacks,omitempty"`
	// Without are the optional key sources that do not name the caller. The window is that of its
	// requests without a value of them: those with one are counted in other windows.
	Without []string `json:"without,omitempty"`

	Limit int64 `json:"limit"` // the limit that applies
	// Declared is the policy's limit, or that of its override or plan for this caller.
	Declared int64 `json:"declared"`
	Override bool  `json:"override"`
	// Plan is the caller's plan if it sets Declared. PlanUnknown means that the plan is not known,
	// and Declared is what a caller without one has.
	Plan        string `json:"plan,omitempty"`
	PlanUnknown bool   `json:"plan_unknown,omitempty"`
	// Unlisted is the caller's plan if the limiter has others and not it: Declared is what a caller
	// without a plan has.
	Unlisted string       `json:"unlisted_plan,omitempty"`
	Grant    *CallerGrant `json:"grant"` // null: none
	Exempt   bool         `json:"exempt"`
	Denied   bool         `json:"denied"`
	// Everyone means that all callers share the window, so resets and grants do not change it.
	Everyone bool  `json:"shared"`
	Count    int64 `json:"count"`
	Remain   int64 `json:"remaining"`
	Reset    int64 `json:"reset"` // Unix seconds; 0: the window is not open
	// EndsEarly means that the grant raises the limit, and ends before the window resets. What the
	// caller spends beyond Declared still counts until then.
	EndsEarly bool `json:"grant_ends_early,omitempty"`
	// InFlight means that this is the limit in flight: Count is the requests under way. It has no
	// Reset, and resets and grants do not change it.
	InFlight bool `json:"in_flight"`
	// Penalty is when the limiter's penalty of the caller ends, in Unix seconds; 0: it is under
	// none. Only the limiter's first window has it.
	Penalty int64 `json:"penalty"`
}

// A CallerGrant is another limit until a time.
type CallerGrant struct {
	Limit int64 `json:"limit"`
	Until int64 `json:"until"` // Unix seconds
}

// CallerWindows are the answer to GET /keys. Resets and grants answer with the state after them.
type CallerWindows struct {
	// Kinds are the key sources that identify the caller, such as "ip+agent".
	Kinds   string         `json:"kinds"`
	Now     int64          `json:"now"` // Unix seconds on the store's clock
	Windows []CallerWindow `json:"windows"`
}

// resolve returns the caller that c names, and the limiters to look at.
func (s *Server) resolve(c callerQuery) (*named, []*weir.Limiter, *refusal) {
	n, bad := s.find(c)
	if bad != nil {
		return nil, nil, bad
	}
	limiters, bad := s.limitersOf(n, c.Limiter)
	return n, limiters, bad
}

// limitersOf returns the named limiter of the policy in force, or if none is named, all that count
// the caller.
func (s *Server) limitersOf(n *named, limiter string) ([]*weir.Limiter, *refusal) {
	if limiter == "" {
		limiter = n.limiter
	}
	policy := s.options.Decider.Policy()
	var all []*weir.Limiter
	var names []string
	for i := range policy.Limiters {
		l := &policy.Limiters[i]
		names = append(names, l.Name)
		rows := l.Rows()
		counts := slices.ContainsFunc(rows, func(w weir.Window) bool { return n.uses(&w) })
		if l.Name == limiter && !counts {
			var lacks []string
			for j := range rows {
				if what := n.lacks(&rows[j]); what != "" && !slices.Contains(lacks, what) {
					lacks = append(lacks, what)
				}
			}
			return nil, &refusal{http.StatusUnprocessableEntity, "not_counted", fmt.Sprintf("Limiter %s does not count by the keys that are named; name %s too.", l.Name, strings.Join(lacks, " and "))}
		}
		if counts && (limiter == "" || l.Name == limiter) {
			all = append(all, l)
		}
	}
	if limiter != "" && len(all) == 0 {
		return nil, &refusal{http.StatusNotFound, "unknown_limiter", fmt.Sprintf("The policy in force has no limiter %.80q; it has %s.", limiter, strings.Join(names, ", "))}
	}
	if len(all) == 0 {
		return nil, &refusal{http.StatusUnprocessableEntity, "not_counted", "No limiter of the policy counts by the keys that are named."}
	}
	return all, nil
}

// inspect returns the state of a caller's windows. If there are several possible callers, it is
// that of one under a penalty, else that of the caller that has spent most.
func (s *Server) inspect(ctx context.Context, n *named, limiters []*weir.Limiter) (*CallerWindows, error) {
	out := &CallerWindows{Kinds: n.kinds(), Windows: []CallerWindow{}}
	for _, l := range limiters {
		var best []weir.WindowState
		spent := int64(-1)
		for _, caller := range n.callers {
			found, err := s.options.Decider.Inspect(ctx, l.Name, caller)
			if err != nil {
				return nil, err
			}
			total := int64(0)
			for i := range found {
				if n.lacks(found[i].Window) == "" {
					total += found[i].Count + found[i].Grant.Limit + found[i].PenaltyEnds
				}
			}
			if total > spent {
				best, spent = found, total
			}
		}
		for i := range best {
			out.Windows = append(out.Windows, n.window(&best[i]))
			out.Now = best[i].Now
		}
	}
	return out, nil
}

func (n *named) window(h *weir.WindowState) CallerWindow {
	w := CallerWindow{Limiter: h.Limiter.Name, Window: h.Window.String(), InFlight: h.InFlight}
	if w.Lacks = n.lacks(h.Window); w.Lacks != "" {
		return w
	}
	w.Without = n.without(h.Window)
	w.Everyone, w.Denied, w.Penalty = h.Everyone, h.Denied, h.PenaltyEnds
	w.Plan, w.PlanUnknown, w.Unlisted = h.Plan, h.PlanUnknown, n.unlisted(h)
	w.Limit, w.Declared, w.Override, w.Exempt, w.Count, w.Remain, w.Reset = h.Limit, h.Declared, h.Override, h.Exempt, h.Count, h.Remaining, h.Reset
	if h.Grant.Limit > 0 {
		w.Grant, w.EndsEarly = &CallerGrant{h.Grant.Limit, h.Grant.Until}, endsEarly(h)
	}
	return w
}

// storeTimeout is the time-out for the store's work on one request.
const storeTimeout = 5 * time.Second

// writeError answers for an operation that failed.
func writeError(w http.ResponseWriter, err error) {
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		refused.write(w)
	case errors.Is(err, ErrAudit):
		refuse(w, http.StatusServiceUnavailable, "audit_unavailable", err.Error())
	case errors.Is(err, weir.ErrNoLimiter):
		refuse(w, http.StatusNotFound, "unknown_limiter", err.Error())
	case errors.Is(err, weir.ErrNoKeeper):
		refuse(w, http.StatusNotImplemented, "no_keeper", err.Error())
	case errors.Is(err, memstore.ErrShared):
		refuse(w, http.StatusConflict, "shared_budget", err.Error())
	default:
		refuse(w, http.StatusServiceUnavailable, "store_unavailable", "The store failed; if this was a change, it may or may not have been made: "+err.Error())
	}
}

// showKeys answers GET /keys.
func (s *Server) showKeys(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	c, bad := callerOf(q)
	if bad != nil {
		bad.write(w)
		return
	}
	n, limiters, bad := s.resolve(c)
	if bad != nil {
		bad.write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	out, err := s.inspect(ctx, n, limiters)
	if err != nil {
		writeError(w, err)
		return
	}
	answer(w, http.StatusOK, out)
}

// callerOf reads a caller from a query. Each parameter is allowed once.
func callerOf(q map[string][]string) (c callerQuery, bad *refusal) {
	into := map[string]*string{"ip": &c.IP, "agent": &c.Agent, "session": &c.Session, "issuer": &c.Issuer, "token": &c.Token, "host": &c.Host, "cert": &c.Cert, "denial": &c.Denial, "hash": &c.Hash, "limiter": &c.Limiter}
	for name, values := range q {
		if list := c.lists()[name]; list != nil {
			*list = values
			continue
		}
		to := into[name]
		if to == nil || len(values) != 1 {
			return c, &refusal{http.StatusBadRequest, "invalid_query", fmt.Sprintf("Query parameter %.40q: ip, agent, session, issuer, token, host, denial, hash and limiter are allowed, each once, and header, path, cookie, query and claim.", name)}
		}
		*to = values[0]
	}
	return c, nil
}

// A change is the body of POST /keys/reset and POST /keys/grant.
type change struct {
	callerQuery
	Times  *json.Number   `json:"times"`
	Limits *[]json.Number `json:"limits"`
	Until  any            `json:"until"` // RFC 3339, or Unix seconds
	For    string         `json:"for"`   // a duration such as 2h, instead of until
	Why    string         `json:"why"`
}

const maxChange = 64 << 10 // bytes

// readChange reads and checks the body. If ok is false, it has refused the request.
func readChange(w http.ResponseWriter, r *http.Request) (c change, ok bool) {
	if !hasType(w, r, typeJSON) {
		return c, false
	}
	b, ok := body(w, r, maxChange)
	if !ok {
		return c, false
	}
	err := decodeStrict(b, &c)
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_body", "The body is not a valid JSON object for this request: "+err.Error())
		return c, false
	}
	if err := CheckWhy(c.Why); err != nil {
		refuse(w, http.StatusUnprocessableEntity, "invalid_why", "why: "+err.Error()+".")
		return c, false
	}
	if c.Why = strings.TrimSpace(c.Why); c.Why == "" {
		refuse(w, http.StatusUnprocessableEntity, "no_why", "why is required: the audit log records the reason for every change.")
		return c, false
	}
	return c, true
}

// decodeStrict reads one JSON object into v. Unlike encoding/json, it rejects repeated fields,
// fields in other letter case and invalid UTF-8, so that the caller is unambiguous.
func decodeStrict(b []byte, v any) error {
	if !utf8.Valid(b) {
		return errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("it has text after the object")
	}
	// Decode accepted the object, whose fields are flat or lists of numbers. Only the names of the
	// fields are left to check.
	d = json.NewDecoder(bytes.NewReader(b))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return errors.New("it is not an object")
	}
	seen := make(map[string]bool)
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		text, _ := name.(string)
		// case folding turns ſ into s
		if seen[text] || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz") != "" {
			return fmt.Errorf("field %.40q is repeated or not in lower case", text)
		}
		seen[text] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
	}
	return nil
}

// resetKeys answers POST /keys/reset.
func (s *Server) resetKeys(w http.ResponseWriter, r *http.Request) {
	c, ok := readChange(w, r)
	if !ok {
		return
	}
	if c.Times != nil || c.Limits != nil || c.Until != nil || c.For != "" {
		refuse(w, http.StatusBadRequest, "invalid_body", "A reset has no times, limits, until or for: those belong to /keys/grant.")
		return
	}
	s.change(w, r, c, "reset", func(ctx context.Context, n *named, limiters []*weir.Limiter, _ *CallerWindows) (planned, error) {
		return planned{do: func(l *weir.Limiter, caller weir.Keys) error { return s.options.Decider.Reset(ctx, l.Name, caller) }}, nil
	})
}

// A planned is a change that is made once it is in the audit log.
type planned struct {
	after any // Entry.After
	do    func(*weir.Limiter, weir.Keys) error
}

// change finds the caller, plans the change, logs it, makes it, and answers.
func (s *Server) change(w http.ResponseWriter, r *http.Request, c change, what string, plan func(context.Context, *named, []*weir.Limiter, *CallerWindows) (planned, error)) {
	n, limiters, bad := s.resolve(c.callerQuery)
	if bad != nil {
		bad.write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	version := s.options.Policy.State().Version
	before, err := s.inspect(ctx, n, limiters)
	if err != nil {
		writeError(w, err)
		return
	}
	p, err := plan(ctx, n, limiters, before)
	if err != nil {
		writeError(w, err)
		return
	}
	entry := Entry{Who: "token " + requester(r).Name, What: what, Limiter: names(limiters), Caller: s.options.Audit.hash(n), Before: before.Windows, After: p.after, Why: c.Why}
	if err := s.options.Audit.Append(ctx, entry); err != nil {
		s.log.Error("a change was refused because it cannot be logged", "what", what, "error", err)
		writeError(w, err)
		return
	}
	if err := s.apply(p, n, limiters, version); err != nil {
		entry.What, entry.Before, entry.After = what+" failed", nil, nil
		// if this entry is lost, the first one still shows the attempt
		_ = s.options.Audit.Append(context.WithoutCancel(ctx), entry)
		writeError(w, err)
		return
	}
	s.log.Info("an operator changed the limits of a caller", "what", what, "by", requester(r).Name, "limiter", entry.Limiter, "caller", entry.Caller.Hash,
		"why", plaintext.Line(c.Why, MaxWhy))
	out, err := s.inspect(ctx, n, limiters)
	if err != nil { // the change is made, so the answer is 200
		out = &CallerWindows{Kinds: before.Kinds, Now: before.Now, Windows: []CallerWindow{}}
	}
	answer(w, http.StatusOK, out)
}

// apply makes the logged change. It refuses if another policy has come into force since, because
// its windows may differ.
func (s *Server) apply(p planned, n *named, limiters []*weir.Limiter, version string) error {
	if now := s.options.Policy.State().Version; now != version {
		return &refusal{http.StatusConflict, "policy_changed", fmt.Sprintf("Policy %s replaced %s meanwhile, and nothing was changed; check again and repeat the request.", now, version)}
	}
	for _, l := range limiters {
		for _, caller := range n.callers {
			if err := p.do(l, caller); err != nil {
				return err
			}
		}
	}
	return nil
}

func names(limiters []*weir.Limiter) string {
	all := make([]string, len(limiters))
	for i, l := range limiters {
		all[i] = l.Name
	}
	return strings.Join(all, ",")
}

// number parses a whole number, which may have any length in JSON.
func number(text json.Number) (int64, bool) {
	n, err := strconv.ParseInt(text.String(), 10, 64)
	return n, err == nil
}
