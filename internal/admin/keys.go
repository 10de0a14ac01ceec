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
	"github.com/weirlimit/weir/memstore"
)

// A window is where one window stands for a caller.
type window struct {
	Limiter  string `json:"limiter"`
	Window   string `json:"window"`          // as the policy spells it
	Lacks    string `json:"lacks,omitempty"` // what would have to be named too; then nothing else is told of the window
	Limit    int64  `json:"limit"`           // what holds
	Declared int64  `json:"declared"`        // the policy's, or its override's for this caller
	Override bool   `json:"override"`
	Grant    *grant `json:"grant"` // null: none
	Exempt   bool   `json:"exempt"`
	Shared   bool   `json:"shared"` // all callers share it, so that no reset or grant of one of them touches it
	Count    int64  `json:"count"`
	Remain   int64  `json:"remaining"`
	Reset    int64  `json:"reset"` // Unix seconds; 0: the window is not open
}

// A grant is another limit until a time.
type grant struct {
	Limit int64 `json:"limit"`
	Until int64 `json:"until"` // Unix seconds
}

// An inspection is what GET /keys answers, and what resets and grants answer of afterwards.
type inspection struct {
	Kinds   string   `json:"kinds"` // what the caller was named by: "ip+agent"
	Now     int64    `json:"now"`   // by the store's clock
	Windows []window `json:"windows"`
}

// resolve returns whom an operator means, and the limiters that are asked about.
func (s *Server) resolve(c callerWords) (*named, []*weir.Limiter, *refusal) {
	n, bad := s.find(c)
	if bad != nil {
		return nil, nil, bad
	}
	limiters, bad := s.limitersOf(n, c.Limiter)
	return n, limiters, bad
}

// limitersOf returns the limiters of the policy in force that an operator means.
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
		counts := slices.ContainsFunc(l.Windows, func(w weir.Window) bool { return n.uses(&w) })
		if l.Name == limiter && !counts {
			var lacks []string
			for j := range l.Windows {
				if what := n.lacks(&l.Windows[j]); what != "" && !slices.Contains(lacks, what) {
					lacks = append(lacks, what)
				}
			}
			return nil, &refusal{http.StatusUnprocessableEntity, "not_counted", fmt.Sprintf("Limiter %s counts nobody by what is named; name %s too.", l.Name, strings.Join(lacks, " and "))}
		}
		if counts && (limiter == "" || l.Name == limiter) {
			all = append(all, l)
		}
	}
	if limiter != "" && len(all) == 0 {
		return nil, &refusal{http.StatusNotFound, "unknown_limiter", fmt.Sprintf("The policy in force has no limiter %.80q; it has %s.", limiter, strings.Join(names, ", "))}
	}
	if len(all) == 0 {
		return nil, &refusal{http.StatusUnprocessableEntity, "not_counted", "No limiter of the policy counts by what is named."}
	}
	return all, nil
}

// inspect tells where a caller stands. Of several that a session may be counted by it is the one that has spent most.
func (s *Server) inspect(ctx context.Context, n *named, limiters []*weir.Limiter) (*inspection, error) {
	out := &inspection{Kinds: n.kinds(), Windows: []window{}}
	for _, l := range limiters {
		var best []weir.Holding
		spent := int64(-1)
		for _, caller := range n.callers {
			found, err := s.options.Decider.Inspect(ctx, l.Name, caller)
			if err != nil {
				return nil, err
			}
			total := int64(0)
			for i := range found {
				if n.lacks(found[i].Window) == "" {
					total += found[i].Count + found[i].Grant.Limit
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

func (n *named) window(h *weir.Holding) window {
	w := window{Limiter: h.Limiter.Name, Window: h.Window.String()}
	if w.Lacks = n.lacks(h.Window); w.Lacks != "" {
		return w
	}
	w.Shared = h.Shared
	w.Limit, w.Declared, w.Override, w.Exempt, w.Count, w.Remain, w.Reset = h.Limit, h.Declared, h.Override, h.Exempt, h.Count, h.Remaining, h.Reset
	if h.Grant.Limit > 0 {
		w.Grant = &grant{h.Grant.Limit, h.Grant.Until}
	}
	return w
}

// storePatience bounds what one request asks of the store.
const storePatience = 5 * time.Second

// tellError answers for an operation that did not come about.
func tellError(w http.ResponseWriter, err error) {
	var told *refusal
	switch {
	case errors.As(err, &told):
		told.tell(w)
	case errors.Is(err, ErrAudit):
		refuse(w, http.StatusServiceUnavailable, "audit_unavailable", err.Error())
	case errors.Is(err, weir.ErrNoLimiter):
		refuse(w, http.StatusNotFound, "unknown_limiter", err.Error())
	case errors.Is(err, weir.ErrNoKeeper):
		refuse(w, http.StatusNotImplemented, "no_keeper", err.Error())
	case errors.Is(err, memstore.ErrShared):
		refuse(w, http.StatusConflict, "shared_budget", err.Error())
	default:
		refuse(w, http.StatusServiceUnavailable, "store_unavailable", "The store did not do it, or it is unknown whether it did: "+err.Error())
	}
}

// showKeys answers GET /keys.
func (s *Server) showKeys(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	c, bad := callerOf(q)
	if bad != nil {
		bad.tell(w)
		return
	}
	n, limiters, bad := s.resolve(c)
	if bad != nil {
		bad.tell(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), storePatience)
	defer cancel()
	out, err := s.inspect(ctx, n, limiters)
	if err != nil {
		tellError(w, err)
		return
	}
	answer(w, http.StatusOK, out)
}

// callerOf reads a caller from a query, each name once.
func callerOf(q map[string][]string) (c callerWords, bad *refusal) {
	into := map[string]*string{"ip": &c.IP, "agent": &c.Agent, "session": &c.Session, "issuer": &c.Issuer, "token": &c.Token, "denial": &c.Denial, "hash": &c.Hash, "limiter": &c.Limiter}
	for name, values := range q {
		to := into[name]
		if to == nil || len(values) != 1 {
			return c, &refusal{http.StatusBadRequest, "invalid_query", fmt.Sprintf("Query parameter %.40q: ip, agent, session, issuer, token, denial, hash and limiter are allowed, each once.", name)}
		}
		*to = values[0]
	}
	return c, nil
}

// A change is what POST /keys/reset and /keys/grant are sent.
type change struct {
	callerWords
	Times  *json.Number   `json:"times"`
	Limits *[]json.Number `json:"limits"`
	Until  any            `json:"until"` // RFC 3339, or Unix seconds
	For    string         `json:"for"`   // a duration such as 2h, in place of until
	Why    string         `json:"why"`
}

const (
	mostChange = 64 << 10 // bytes
	mostWhy    = 1000     // bytes
)

// readChange reads the body, strictly.
func readChange(w http.ResponseWriter, r *http.Request) (c change, ok bool) {
	if !hasType(w, r, typeJSON) {
		return c, false
	}
	b, ok := body(w, r, mostChange)
	if !ok {
		return c, false
	}
	err := strictly(b, &c)
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_body", "The body is not the JSON object that is wanted here: "+err.Error())
		return c, false
	}
	if len(c.Why) > mostWhy {
		refuse(w, http.StatusUnprocessableEntity, "why_too_long", fmt.Sprintf("why may have %d bytes at most.", mostWhy))
		return c, false
	}
	if c.Why = strings.TrimSpace(c.Why); c.Why == "" {
		refuse(w, http.StatusUnprocessableEntity, "no_why", "why is required: it is an exception, the audit log keeps it, and somebody will ask.")
		return c, false
	}
	return c, true
}

// strictly reads one JSON object into v. Unlike encoding/json alone it takes no field twice, none in other letters, and no text that is
// not UTF-8: whoever is meant must be beyond doubt.
func strictly(b []byte, v any) error {
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
		return errors.New("it goes on after the object")
	}
	// Of an object that is known to be one, and to have flat fields and lists of numbers only, the names are what is left to look at.
	d = json.NewDecoder(bytes.NewReader(b))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return errors.New("it is no object")
	}
	seen := make(map[string]bool)
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		text, _ := name.(string)
		if seen[text] || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz") != "" { // ſ is s where case is folded
			return fmt.Errorf("field %.40q stands there twice, or not in small letters", text)
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
		refuse(w, http.StatusBadRequest, "invalid_body", "A reset has no times, limits, until or for: those are of /keys/grant.")
		return
	}
	s.change(w, r, c, "reset", func(ctx context.Context, n *named, limiters []*weir.Limiter, _ *inspection) (planned, error) {
		return planned{do: func(l *weir.Limiter, caller weir.Keys) error { return s.options.Decider.Reset(ctx, l.Name, caller) }}, nil
	})
}

// planned is what a change will do, once it is in the audit log.
type planned struct {
	after any // what the log says of it
	do    func(*weir.Limiter, weir.Keys) error
}

// change finds the caller, plans, logs, and does it.
func (s *Server) change(w http.ResponseWriter, r *http.Request, c change, what string, plan func(context.Context, *named, []*weir.Limiter, *inspection) (planned, error)) {
	n, limiters, bad := s.resolve(c.callerWords)
	if bad != nil {
		bad.tell(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), storePatience)
	defer cancel()
	version := s.options.Policy.State().Version
	before, err := s.inspect(ctx, n, limiters)
	if err != nil {
		tellError(w, err)
		return
	}
	p, err := plan(ctx, n, limiters, before)
	if err != nil {
		tellError(w, err)
		return
	}
	entry := Entry{Who: "token " + who(r), What: what, Limiter: names(limiters), Caller: s.options.Audit.hash(n), Before: before.Windows, After: p.after, Why: c.Why}
	if err := s.options.Audit.Append(ctx, entry); err != nil {
		s.log.Error("a change was refused", "what", what, "error", err)
		tellError(w, err)
		return
	}
	if err := s.carryOut(p, n, limiters, version); err != nil {
		entry.What, entry.Before, entry.After = what+" failed", nil, nil
		_ = s.options.Audit.Append(context.WithoutCancel(ctx), entry) // that it was to be is there
		tellError(w, err)
		return
	}
	s.log.Info("an operator has changed what holds for a caller", "what", what, "by", who(r), "limiter", entry.Limiter, "caller", entry.Caller.Hash)
	out, err := s.inspect(ctx, n, limiters)
	if err != nil { // it is done all the same
		out = &inspection{Kinds: before.Kinds, Now: before.Now, Windows: []window{}}
	}
	answer(w, http.StatusOK, out)
}

// carryOut does what was planned and logged, unless another policy has come into force since: its windows would be others.
func (s *Server) carryOut(p planned, n *named, limiters []*weir.Limiter, version string) error {
	if now := s.options.Policy.State().Version; now != version {
		return &refusal{http.StatusConflict, "policy_changed", fmt.Sprintf("Policy %s came into force in place of %s meanwhile, and nothing was changed; look again, and ask again.", now, version)}
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

// number reads a whole number that JSON may have spelled at any length.
func number(text json.Number) (int64, bool) {
	n, err := strconv.ParseInt(text.String(), 10, 64)
	return n, err == nil
}
