package verify

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A littleServer limits by X-Team what a policy of settling_test.go says. It shares no code with
// the module's own server. Its zero breaks are correct.
type littleServer struct {
	slots, limit int // 0: none
	reserve      int // units of a request; 0: one
	cost         int // units that a request costs in the end, in X-Cost; 0: what it reserves
	status       int
	uncounted    func(status int) bool // nil: all are counted
	breaks       littleBreaks

	mu    sync.Mutex
	teams map[string]*team
}

type team struct {
	used, underWay int
	reset          int64
}

type littleBreaks struct {
	spare      int    // slots beyond the limit
	keeps      bool   // slots do not come back
	keepsLeft  bool   // slots of callers who left do not come back
	twice      bool   // slots come back twice
	shared     bool   // all callers share the slots
	charges    bool   // a request that the slots refuse is charged
	chargesAll bool   // a status that is not counted is charged
	countsNone bool   // a counted status is given back
	retryAfter string // of a refusal by the slots
	reset      int64  // of a refusal by the slots, later
	remaining  int    // of a refusal by the slots
	limit      int    // of a refusal by the slots
	oneTooFew  bool
	late       bool // a request is charged when its answer is known
}

func (s *littleServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := ""
	if lines := r.Header.Values("X-Team"); len(lines) == 1 {
		name = lines[0]
	}
	now := time.Now().Unix()
	s.mu.Lock()
	t := s.team(name, now)
	slots := t
	if s.breaks.shared {
		slots = s.team("", now)
	}
	allowed := s.slots + s.breaks.spare
	if s.breaks.oneTooFew {
		allowed--
	}
	switch {
	case s.limit > 0 && t.used+s.reserved() > s.limit:
		defer s.mu.Unlock()
		s.refuse(w, s.limit, 0, t.reset, strconv.FormatInt(t.reset-now, 10))
		return
	case s.slots > 0 && slots.underWay >= allowed:
		if s.breaks.charges {
			t.used++
		}
		defer s.mu.Unlock()
		s.refuse(w, cmp.Or(s.breaks.limit, s.slots), s.breaks.remaining, now+1+s.breaks.reset, cmp.Or(s.breaks.retryAfter, "1"))
		return
	}
	if !s.breaks.late {
		t.used += s.reserved()
	}
	slots.underWay++
	limit, remaining, reset := s.limit, s.limit-t.used, t.reset
	if s.limit == 0 {
		limit, remaining, reset = s.slots, max(s.slots-slots.underWay, 0), now+1
	}
	s.mu.Unlock()
	_, err := io.Copy(io.Discard, r.Body)
	if s.breaks.late {
		time.Sleep(time.Millisecond)
	}
	status := s.status
	if r.URL.Path != "/things" {
		status = http.StatusNotFound
	}
	s.mu.Lock()
	switch {
	case s.breaks.keeps, s.breaks.keepsLeft && err != nil:
	case s.breaks.twice:
		slots.underWay = max(slots.underWay-2, 0)
	default:
		slots.underWay--
	}
	uncounted := s.uncounted != nil && s.uncounted(status)
	switch {
	case t.reset != reset:
	case s.breaks.late && !uncounted:
		t.used += cmp.Or(s.cost, s.reserved())
		remaining = max(s.limit-t.used, 0)
	case s.breaks.late:
	case uncounted && !s.breaks.chargesAll, !uncounted && s.breaks.countsNone:
		t.used -= s.reserved()
		remaining += s.reserved()
	case s.cost > 0:
		t.used += s.cost - s.reserved()
		remaining += s.reserved() - s.cost
	}
	s.mu.Unlock()
	if s.cost > 0 {
		w.Header().Set("X-Cost", strconv.Itoa(s.cost))
	}
	setLittle(w, limit, remaining, reset)
	w.WriteHeader(status)
}

func (s *littleServer) reserved() int { return max(s.reserve, 1) }

func (s *littleServer) team(name string, now int64) *team {
	if s.teams == nil {
		s.teams = make(map[string]*team)
	}
	t := s.teams[name]
	if t == nil {
		t = new(team)
		s.teams[name] = t
	}
	if now >= t.reset {
		t.used, t.reset = 0, now+10
	}
	return t
}

func setLittle(w http.ResponseWriter, limit, remaining int, reset int64) {
	w.Header()["X-RateLimit-Limit"] = []string{strconv.Itoa(limit)}
	w.Header()["X-RateLimit-Remaining"] = []string{strconv.Itoa(remaining)}
	w.Header()["X-RateLimit-Reset"] = []string{strconv.FormatInt(reset, 10)}
}

func (s *littleServer) refuse(w http.ResponseWriter, limit, remaining int, reset int64, after string) {
	setLittle(w, limit, remaining, reset)
	w.Header().Set("Retry-After", after)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusTooManyRequests)
	fmt.Fprint(w, `{"error":{"code":"rate_limited","message":"Slow down."}}`)
}

// verifiedLittle verifies a little server.
func verifiedLittle(t *testing.T, policy string, s *littleServer, wrap func(http.Handler) http.Handler) (report *Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		handler := http.Handler(s)
		if wrap != nil {
			handler = wrap(handler)
		}
		defer n.serving(handler)()
		report = verified(t, n.options(policyOf(t, policy)))
	})
	return report
}

const (
	onlySlots = "slots alone"
	both      = "slots and a window"
	logins    = "logins"
	missing   = "all but missing"
	wrong     = "wrong logins"
	costly    = "costs that a field reports"
)

// little returns a server for a policy, and the policy.
func little(kind string, b littleBreaks) (*littleServer, string) {
	switch kind {
	case onlySlots:
		return &littleServer{slots: 3, status: 422, breaks: b}, slotsAlone
	case both:
		return &littleServer{slots: 3, limit: 40, status: 422, breaks: b}, slotsAndWindow
	case costly:
		return &littleServer{limit: 200, reserve: 20, cost: 3, status: 200, breaks: b}, costsOfField
	case wrong:
		return &littleServer{limit: 5, status: 401, uncounted: func(status int) bool { return status != 401 }, breaks: b}, countsWrongLogins
	case logins:
		return &littleServer{limit: 12, status: 200, uncounted: func(status int) bool { return status != 401 }, breaks: b}, countsRefusedLogins
	}
	return &littleServer{limit: 40, status: 200, uncounted: func(status int) bool { return status == 404 }, breaks: b}, countsAllButMissing
}

func TestEachServerThatSettlesWronglyIsFound(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		breaks     littleBreaks
		broken     string // clauses, all that may be; the first must be
	}{
		{"correct", onlySlots, littleBreaks{}, ""},
		{"correct", both, littleBreaks{}, ""},
		{"correct", logins, littleBreaks{}, ""},
		{"correct", missing, littleBreaks{}, ""},
		{"correct", wrong, littleBreaks{}, ""},
		{"charged when the answer is known", wrong, littleBreaks{late: true}, "outcome admitted remaining"},
		{"charged when the answer is known", missing, littleBreaks{late: true}, "outcome admitted remaining"},
		{"correct", costly, littleBreaks{}, ""},
		{"charged when the answer is known", costly, littleBreaks{late: true}, "outcome"},
		{"a slot too many", onlySlots, littleBreaks{spare: 1}, "in-flight"},
		{"a slot too many", both, littleBreaks{spare: 1}, "in-flight"},
		{"no limit on slots", both, littleBreaks{spare: 1000}, "in-flight"},
		{"a slot too few", both, littleBreaks{oneTooFew: true}, "in-flight"},
		{"a slot too few", onlySlots, littleBreaks{oneTooFew: true}, "in-flight"},
		{"slots do not come back", onlySlots, littleBreaks{keeps: true}, "in-flight"},
		{"slots do not come back", both, littleBreaks{keeps: true}, "in-flight"},
		{"slots of those who leave do not come back", onlySlots, littleBreaks{keepsLeft: true}, "in-flight"},
		{"slots of those who leave do not come back", both, littleBreaks{keepsLeft: true}, "in-flight"},
		{"slots come back twice", onlySlots, littleBreaks{twice: true}, "in-flight"},
		{"slots come back twice", both, littleBreaks{twice: true}, "in-flight"},
		{"all callers share the slots", onlySlots, littleBreaks{shared: true}, "in-flight"},
		{"all callers share the slots", both, littleBreaks{shared: true}, "in-flight"},
		{"Retry-After is 5", both, littleBreaks{retryAfter: "5"}, "in-flight"},
		{"Retry-After is 5", onlySlots, littleBreaks{retryAfter: "5"}, "in-flight retry-after"},
		{"Reset is late", onlySlots, littleBreaks{reset: 7}, "in-flight window"},
		{"Remaining is 2", both, littleBreaks{remaining: 2}, "in-flight refused-remaining"},
		{"Limit is the window's", both, littleBreaks{limit: 40}, "in-flight reset-constant"},
		{"a refusal spends", both, littleBreaks{charges: true}, "in-flight"},
		{"an uncounted status is charged", logins, littleBreaks{chargesAll: true}, "outcome"},
		{"an uncounted status is charged", missing, littleBreaks{chargesAll: true}, "outcome"},
		{"a counted status is given back", missing, littleBreaks{countsNone: true}, "outcome admitted remaining window"},
	} {
		t.Run(c.kind+", "+c.name, func(t *testing.T) {
			t.Parallel()
			s, policy := little(c.kind, c.breaks)
			r := verifiedLittle(t, policy, s, nil)
			first, _, _ := strings.Cut(c.broken, " ")
			for _, x := range r.Results {
				if x.Verdict == Broken && !strings.Contains(" "+c.broken+" ", " "+x.Clause+" ") {
					t.Errorf("reported as broken, though it is not: %s: %s\n%s", x.Clause, x.Detail, table(r))
				}
			}
			if first != "" && verdictOf(t, r, first).Verdict != Broken {
				t.Errorf("%s is reported as %s: %s\n%s", first, verdictOf(t, r, first).Verdict, verdictOf(t, r, first).Detail, table(r))
			}
		})
	}
}

// A proxy may keep a request back until its body is whole: then nothing is under way at the
// limiter.
func TestAProxyThatKeepsRequestsBackBreaksNoClause(t *testing.T) {
	whole := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			next.ServeHTTP(w, r)
		})
	}
	for _, kind := range []string{onlySlots, both} {
		s, policy := little(kind, littleBreaks{})
		r := verifiedLittle(t, policy, s, whole)
		if got := verdictOf(t, r, "in-flight"); r.Broken() || got.Verdict != Untested || !strings.Contains(got.Detail, "a proxy may keep them back") {
			t.Errorf("%s: in-flight is %s: %s\n%s", kind, got.Verdict, got.Detail, table(r))
		}
	}
}
