package verify_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// This file and broken_api_test.go implement a separate rate-limited API from the
// contract alone. It shares no code with the module's own server, so that a
// misreading in one does not hide the same misreading in the other. It is correct;
// a defect (see breaks) breaks it in one way.

// A rule is a limiter.
type rule struct {
	name   string
	routes []string // "POST /a/b", "/a/b*", "/a/*"; the first rule that matches counts
	spans  []span
}

// A span is one window of a limiter.
type span struct {
	limit int
	per   int64    // seconds
	by    []string // "ip", "agent", "session", "token"; "session or ip" if there may be no session
}

// key returns the window's key as written in a policy.
func (s span) String() string {
	unit := map[int64]string{60: "minute", 3600: "hour"}[s.per]
	if unit == "" {
		unit = fmt.Sprint(s.per, " seconds")
	}
	return fmt.Sprintf("%d per %s by %s", s.limit, unit, strings.Join(s.by, "+"))
}

// small are the contract's limiters with small limits.
func small() []rule {
	minute := func(limit int, by ...string) []span { return []span{{limit, 60, by}} }
	return []rule{
		{"widget-init", []string{"POST /api/v1/widget/init"}, []span{{30, 60, []string{"ip", "agent"}}, {100, 3600, []string{"ip"}}}},
		{"widget-session", []string{"POST /api/v1/widget/messages*", "/api/v1/widget/events*", "/api/v1/widget/conversations*"}, minute(34, "session or ip")},
		{"widget-leads", []string{"POST /api/v1/widget/leads"}, minute(32, "session or ip")},
		{"wp-plugin", []string{"/v1/wp/*"}, minute(36, "token or ip")},
		{"widget-typing", []string{"POST /api/v1/widget/typing"}, minute(26, "ip")},
		{"widget-satisfaction", []string{"POST /api/v1/widget/satisfaction"}, minute(21, "ip")},
		{"widget-coupon", []string{"POST /api/v1/widget/coupon/apply"}, minute(23, "ip")},
		{"widget-other", []string{"/api/v1/widget/*"}, minute(160, "ip")},
	}
}

// full are the contract's limiters with its limits.
func full() []rule {
	rules := small()
	for i, limit := range []int{1000, 300, 30, 60, 600, 60, 120, 6000} {
		rules[i].spans[0].limit = limit
	}
	rules[0].spans[1].limit = 30000
	return rules
}

// document writes rules as a policy file.
func document(rules []rule) string {
	var b strings.Builder
	b.WriteString("limiters:\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "  - name: %s\n    routes: [%s]\n    windows:\n", r.name, strings.Join(r.routes, ", "))
		requires := ""
		for _, s := range r.spans {
			fmt.Fprintf(&b, "      - %s\n", s)
			for _, credential := range []string{"session", "token"} {
				if strings.Contains(s.String(), credential) {
					requires = "    requires: " + credential + "\n"
				}
			}
		}
		b.WriteString(requires) // the server answers 401
	}
	return b.String()
}

// fallback counts preflights, and requests on the widget surface that no other
// limiter covers.
const fallback = "widget-other"

// A window is one key's count.
type window struct {
	from, reset int64 // Unix seconds
	used        int
	refused     int
	forgotten   bool
	past        []time.Time // when each unit was taken; only for a sliding window
}

// A standing is one window's state after a request.
type standing struct {
	limit, remaining int
	per, reset       int64
	wait             int64 // Retry-After; 0 if it is the time until reset
}

// An api is the server.
type api struct {
	rules  []rule
	breaks breaks
	skew   time.Duration // how far its clock is ahead
	start  time.Duration // how long after a full minute the verification starts
	// Whether another caller's request comes in before this one; nil if none does.
	others func() bool
	before func() time.Duration       // how long it takes to decide
	after  func() time.Duration       // and then to answer
	dated  func(now time.Time) string // Date; nil if it is when the answer was written
	// Only one spelling of its endpoints is known, also to its limiters.
	strict bool

	seen    atomic.Int64 // requests, including those that no limiter counts
	mu      sync.Mutex
	windows map[string]*window
	moving  map[string]counter
	minted  int
}

func newAPI(rules []rule) *api {
	little := func() time.Duration { return time.Millisecond / 2 }
	return &api{
		rules: rules, windows: map[string]*window{}, moving: map[string]counter{}, start: 17*time.Second + 300*time.Millisecond, before: little, after: little,
		dated: func(now time.Time) string { return now.UTC().Format(http.TimeFormat) },
	}
}

func (a *api) now() time.Time { return time.Now().Add(a.skew) }

// A breaks describes how a server is broken. Its zero value breaks nothing.
type breaks struct {
	// Counting.
	spare     int  // units admitted beyond Limit
	unlimited bool // never refuses
	always    bool // always refuses
	// Whether a request beyond the limit is admitted; nil if none is.
	leaks func() bool
	race  time.Duration // between reading and counting
	// Between counting and reading the rest.
	rereads time.Duration
	// A refused request is charged to the next window.
	debts bool
	// A refused request extends the window.
	prolongs bool
	silently bool // and Reset does not show it
	// A refused request is charged to the windows that had room for it.
	chargesOthers bool
	// How many seconds after Reset the budget is restored; before if negative.
	restores int64
	// The budget is restored with the clock's minute, not at Reset.
	aligned bool
	// Windows begin with the clock's minute or hour, as does Reset. This is not a
	// defect.
	floors bool
	// Units are restored one by one, a window's length after they were taken.
	slides bool
	never  bool // the budget is not restored
	half   bool // only half of it is restored
	// A key's count is lost, once in each window, when it has reached this value.
	forgets  int
	restarts bool // and a new window begins
	// Counts without fixed windows, if not nil.
	counter func(limit int, per time.Duration) counter
	skips   int // units that a request costs in addition to its one

	// Keys.
	key func(x *exchange, source, value string) string // instead of value
	// Instead of verifying the credential.
	verify func(x *exchange)
	peer   func(r *http.Request) string // instead of the peer's address
	// The text by which a limiter is chosen, instead of the canonical path.
	spelled   func(raw, canonical string) string
	preflight func(x *exchange) string // the limiter of a preflight

	// Answers.
	edit func(x *exchange) // the last change of an answer
}

// An exchange is a request, and its answer so far.
type exchange struct {
	*api
	r        *http.Request
	raw      string // the path as received
	path     string // canonical, or as received if there is no such form
	sent     []byte // the body
	rule     *rule  // nil if no limiter covers it
	now      time.Time
	session  string // "" if there is none that verifies
	token    string
	forged   bool   // if it does not verify, its owner is charged all the same
	claimed  string // the credential as received
	standing []standing
	admitted bool

	status int
	header http.Header
	body   string
}

// keys returns the keys by which the rule's windows count the request.
func (x *exchange) keys() []string {
	var all []string
	for i, s := range x.rule.spans {
		key := fmt.Sprintf("%s %d", x.rule.name, i)
		for _, by := range s.by {
			source, value := x.value(by)
			if x.breaks.key != nil {
				value = x.breaks.key(x, source, value)
			}
			key += fmt.Sprintf(" %s=%q", source, value)
		}
		all = append(all, key)
	}
	return all
}

// value returns the request's value for a key source.
func (x *exchange) value(by string) (source, value string) {
	for source := range strings.SplitSeq(by, " or ") {
		switch source {
		case "ip":
			value = x.ip()
		case "agent":
			value = cmp.Or(x.agent(), x.r.UserAgent())
		case "session":
			value = x.session
		case "token":
			value = x.token
		}
		if value != "" {
			return source, value
		}
	}
	return by, ""
}

// take charges every window of the rule or none.
func (x *exchange) take() {
	keys := x.keys()
	a := x.api
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.breaks.counter != nil {
		x.takeMoving(keys)
		return
	}
	now := x.now.Unix()
	if a.others != nil && a.others() {
		x.takeForOthers(keys)
	}
	var full []bool
	for i, s := range x.rule.spans {
		w := a.window(keys[i], s, x.now)
		full = append(full, !a.breaks.unlimited && (a.breaks.always || w.used >= s.limit+a.breaks.spare))
	}
	x.admitted = !slices.Contains(full, true) || a.breaks.leaks != nil && a.breaks.leaks()
	if a.breaks.race > 0 {
		a.mu.Unlock()
		pause(a.breaks.race)
		a.mu.Lock()
	}
	for i, s := range x.rule.spans {
		w := a.windows[keys[i]]
		switch {
		case x.admitted || a.breaks.chargesOthers && !full[i]:
			w.used += 1 + a.breaks.skips
			w.past = append(w.past, x.now)
		case a.breaks.debts:
			w.refused++
		}
		if !x.admitted && full[i] && a.breaks.prolongs {
			w.reset = now + s.per
		}
	}
	if a.breaks.rereads > 0 {
		a.mu.Unlock()
		pause(a.breaks.rereads)
		a.mu.Lock()
	}
	for i, s := range x.rule.spans {
		w := a.windows[keys[i]]
		x.standing = append(x.standing, standing{limit: s.limit, remaining: max(0, s.limit-w.used), per: s.per, reset: w.reset})
		if a.breaks.silently {
			x.standing[i].reset = w.from + s.per
		}
		switch {
		case full[i]:
			x.standing[i].remaining = 0
		case !x.admitted:
			x.standing[i].remaining = s.limit // it does not bind
		}
	}
	slices.SortStableFunc(x.standing, func(a, b standing) int {
		return cmp.Or(cmp.Compare(a.remaining, b.remaining), cmp.Compare(b.reset, a.reset))
	})
}

// takeForOthers charges a request of another caller with the same address or token,
// but another session and agent.
func (x *exchange) takeForOthers(keys []string) {
	for i, s := range x.rule.spans {
		common := true
		for _, by := range s.by {
			source, _ := x.value(by)
			common = common && source != "agent" && source != "session"
		}
		if w := x.window(keys[i], s, x.now); common && w.used < s.limit {
			w.used++
		}
	}
}

// window returns a key's current window.
func (a *api) window(key string, s span, now time.Time) *window {
	w, b := a.windows[key], a.breaks
	unix := now.Unix()
	if w == nil {
		w = a.opened(s, unix)
		a.windows[key] = w
	}
	if b.forgets > 0 && w.used >= b.forgets && !w.forgotten {
		w.used, w.forgotten = 0, true
		if b.restarts {
			w.from, w.reset = unix, unix+s.per
		}
	}
	over := unix >= w.reset+b.restores
	switch {
	case b.never:
		if unix >= w.reset {
			w.from, w.reset = unix, unix+s.per
		}
		return w
	case b.slides:
		for len(w.past) > 0 && now.Sub(w.past[0]) >= time.Duration(s.per)*time.Second {
			w.past = w.past[1:]
		}
		w.used = len(w.past)
		if unix >= w.reset {
			w.from, w.reset = unix, unix+s.per
		}
		return w
	case b.aligned:
		over = unix/s.per > w.from/s.per
	}
	if over {
		used := min(w.refused, s.limit)
		if b.half {
			used = s.limit / 2
		}
		*w = *a.opened(s, unix)
		w.used = used
	}
	return w
}

// opened returns a window that begins now.
func (a *api) opened(s span, unix int64) *window {
	if a.breaks.floors {
		unix -= unix % s.per
	}
	return &window{from: unix, reset: unix + s.per}
}

// count admits the request or answers 429. The answer has the standing in both
// cases.
func (x *exchange) count() (admitted bool) {
	x.take()
	binding := x.standing[0]
	x.header.Set("X-RateLimit-Limit", strconv.Itoa(binding.limit))
	x.header.Set("X-RateLimit-Remaining", strconv.Itoa(binding.remaining))
	x.header.Set("X-RateLimit-Reset", strconv.FormatInt(binding.reset, 10))
	if x.admitted {
		return true
	}
	x.status = http.StatusTooManyRequests
	x.header.Set("Retry-After", strconv.FormatInt(max(1, cmp.Or(binding.wait, binding.reset-x.now.Unix())), 10))
	x.refuse()
	return false
}

// named returns the rule of that name.
func (a *api) named(name string) *rule {
	for i := range a.rules {
		if a.rules[i].name == name {
			return &a.rules[i]
		}
	}
	return nil
}

// ServeHTTP answers a request. It writes the answer last, so that a defect can
// change all of it.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.seen.Add(1)
	pause(a.before())
	x := &exchange{api: a, r: r, now: a.now(), status: http.StatusOK, header: http.Header{}}
	x.serve()
	if a.dated != nil {
		x.header["Date"] = []string{a.dated(x.now)}
		if x.header.Get("Date") == "" {
			x.header["Date"] = nil // net/http then adds none
		}
	}
	if a.breaks.edit != nil && x.rule != nil {
		a.breaks.edit(x)
	}
	pause(a.after())
	maps.Copy(w.Header(), x.header)
	w.WriteHeader(x.status)
	if r.Method != http.MethodHead && x.status != http.StatusNoContent {
		_, _ = w.Write([]byte(x.body)) // a client that has left needs no answer
	}
}
