package verify

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/policyfile"
)

const penalized = `limiters:
  - name: login
    routes: [/login*]
    windows: [8 per 10 seconds by KEY]
    penalty: {after: 5 refusals per minute, refuse_for: 30 seconds}
    chosen: yes
`

func penalizedBy(key string) string {
	policy := strings.Replace(penalized, "KEY", key, 1)
	if !strings.Contains(key, ":") {
		policy = strings.Replace(policy, "    chosen: yes\n", "", 1)
	}
	return policy
}

// A penalty is followed to its end, whatever its limiter counts by. What would need more refusals
// is untested, and the report says why.
func TestAPenaltyIsFollowedToItsEnd(t *testing.T) {
	for _, key := range []string{"ip", "cookie:sid", "ip+path:user"} {
		policy := penalizedBy(key)
		if strings.Contains(key, "path") {
			policy = strings.Replace(policy, "[/login*]", "['/login/{user}/*', '/login/{user}']", 1)
		}
		r := verifiedByField(t, policy, nil, nil)
		if r.Broken() {
			t.Errorf("by %s: a clause is broken:\n%s", key, table(r))
		}
		for _, clause := range []string{"penalty", "fields-refused", "admitted", "remaining", "window", "refused-status"} {
			if got := verdictOf(t, r, clause); got.Verdict != Kept {
				t.Errorf("by %s: %s is %s: %s\n%s", key, clause, got.Verdict, got.Detail, table(r))
			}
		}
		if got := verdictOf(t, r, "spelling"); got.Verdict != Untested || got.Reason != NeedsMore || !strings.Contains(got.Detail, "it has a penalty") {
			t.Errorf("by %s: spelling is %s: %s", key, got.Verdict, got.Detail)
		}
	}
}

// What the verification would begin and cannot wait for leaves its limiter untested. What it cannot
// reach leaves the penalty alone untested.
func TestAPenaltyThatCannotBeFollowedIsNotBegun(t *testing.T) {
	for _, c := range []struct {
		name, from, to string
		change         func(*Options)
		all            bool // the whole limiter is untested
		why            string
	}{
		{"quick", "30 seconds", "30 seconds", func(o *Options) { o.Quick = true }, true, "(quick)"},
		{"too long", "30 seconds", "15 minutes", nil, true, "the longest wait is 2m0s"},
		{"too many refusals", "5 refusals", "100000 refusals", nil, false, "it takes 100000 refusals per minute"},
		{"shorter than its window", "30 seconds", "2 seconds", nil, false, "its window refuses for longer than the penalty"},
		{"none", "    penalty: {after: 5 refusals per minute, refuse_for: 30 seconds}\n", "", nil, false, "it has no penalty"},
	} {
		policy := strings.Replace(penalizedBy("ip"), c.from, c.to, 1)
		tested := 0
		server := limited(t, policy, http.HandlerFunc(fine))
		r := verifiedAgainst(t, policy, server, c.change)
		for _, x := range r.Results {
			if x.Verdict != Untested {
				tested++
			}
		}
		if got := verdictOf(t, r, "penalty"); got.Verdict != Untested || !strings.Contains(got.Detail, c.why) || r.Broken() || (tested == 0) != c.all {
			t.Errorf("%s: penalty is %s: %s\n%s", c.name, got.Verdict, got.Detail, table(r))
		}
	}
}

// What a correct server does is not a wrong penalty: refusals of a budget that is too small to
// begin one on purpose, of one that all callers share, or of another window.
func TestACorrectPenaltyIsNotTakenForAWrongOne(t *testing.T) {
	for _, rest := range []string{
		`windows: ["1 per 10 seconds by ip"], penalty: {after: 1 refusal per minute, refuse_for: 30 seconds}`,
		`windows: ["9 per 5 seconds by cookie:sid", "9 per 10 seconds by everyone"], chosen: yes, penalty: {after: 5 refusals per minute, refuse_for: 30 seconds}`,
		`windows: ["1 per 7 seconds by ip+cookie:sid", "3 per 28 seconds by ip"], penalty: {after: 1 refusal per 28 seconds, refuse_for: 59 seconds}`,
		`windows: ["9 per 10 seconds by ip", "4 per 5 seconds by ip+cookie:sid"], penalty: {after: 3 refusals per minute, refuse_for: 30 seconds}`,
	} {
		if r := verifiedByField(t, "limiters:\n  - {name: login, routes: [/login*], "+rest+"}\n", nil, nil); r.Broken() {
			t.Errorf("%s: a clause is broken:\n%s", rest, table(r))
		}
	}
}

// A jailer is a limiter with a penalty, written apart from the one that is verified elsewhere: 8
// requests in 10 seconds, and after the fifth refusal nothing for 30 seconds.
type jailer struct {
	after              int
	length, restored   time.Duration // of the penalty, announced and in fact
	prolongs, forgives bool          // each request prolongs it; every other one is admitted
	wait               int64         // more in Retry-After
	everyone           bool          // the penalty is that of all callers

	mu      sync.Mutex
	callers map[string]*jailed
}

type jailed struct {
	windowEnds, penaltyEnds int64
	used, refused, asked    int
}

func (j *jailer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, who := time.Now().Unix(), ""
	if c, err := r.Cookie("sid"); err == nil {
		who = c.Value
	}
	of := func(who string) *jailed {
		if j.callers[who] == nil {
			j.callers[who] = new(jailed)
		}
		return j.callers[who]
	}
	c := of(who)
	jail := c
	if j.everyone {
		jail = of("everyone")
	}
	if now >= c.windowEnds {
		c.windowEnds, c.used = now+10, 0
	}
	status, reset := http.StatusOK, c.windowEnds
	switch late := int64((j.restored - j.length) / time.Second); {
	case now < jail.penaltyEnds+late:
		status, reset = http.StatusTooManyRequests, jail.penaltyEnds
		if jail.asked++; j.prolongs {
			jail.penaltyEnds++
		}
		if j.forgives && jail.asked%2 == 0 {
			status = http.StatusOK
		}
	case c.used >= 8:
		status = http.StatusTooManyRequests
		if c.refused++; c.refused == j.after {
			jail.penaltyEnds = now + int64(j.length/time.Second)
			reset, c.refused = jail.penaltyEnds, 0
		}
	default:
		c.used++
	}
	w.Header()["X-RateLimit-Limit"] = []string{"8"}
	w.Header()["X-RateLimit-Remaining"] = []string{strconv.Itoa(8 - c.used)}
	w.Header()["X-RateLimit-Reset"] = []string{strconv.FormatInt(reset, 10)}
	if status == http.StatusTooManyRequests {
		w.Header().Set("Content-Type", "application/json")
		w.Header()["X-RateLimit-Remaining"] = []string{"0"}
		w.Header().Set("Retry-After", strconv.FormatInt(max(reset-now, 1)+j.wait, 10))
	}
	w.WriteHeader(status)
	if status == http.StatusTooManyRequests {
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"code": "rate_limited", "message": "wait"}})
	}
}

// Each wrong penalty is found by the clause, and the right one is kept.
func TestWrongPenaltiesAreFound(t *testing.T) {
	right := func() *jailer {
		return &jailer{after: 5, length: 30 * time.Second, restored: 30 * time.Second, callers: make(map[string]*jailed)}
	}
	for name, c := range map[string]struct {
		breaks func(*jailer)
		want   string // in the detail
	}{
		"right":                      {func(*jailer) {}, ""},
		"none":                       {func(j *jailer) { j.after = 0 }, "does not begin"},
		"one refusal late":           {func(j *jailer) { j.after = 6 }, "does not begin"},
		"one refusal early":          {func(j *jailer) { j.after = 4 }, "refusal 4 "},
		"too long":                   {func(j *jailer) { j.length, j.restored = 35*time.Second, 35*time.Second }, "35 s after Date"},
		"too short":                  {func(j *jailer) { j.length, j.restored = 20*time.Second, 20*time.Second }, "20 s after Date"},
		"it ends later than said":    {func(j *jailer) { j.restored = 33 * time.Second }, "refused after the end"},
		"it ends sooner than said":   {func(j *jailer) { j.restored = 25 * time.Second }, "answered 200 during the penalty"},
		"each request prolongs it":   {func(j *jailer) { j.prolongs = true }, "must not move"},
		"some requests are admitted": {func(j *jailer) { j.forgives = true }, "answered 200 during the penalty"},
		"Retry-After is too long":    {func(j *jailer) { j.wait = 5 }, "Retry-After is"},
		"all callers are penalized":  {func(j *jailer) { j.everyone = true }, "another caller is refused"},
	} {
		j := right()
		c.breaks(j)
		r := verifiedAgainst(t, penalizedBy("cookie:sid"), j, nil)
		want := Broken
		if c.want == "" {
			want = Kept
		}
		if got := verdictOf(t, r, "penalty"); got.Verdict != want || !strings.Contains(got.Detail, c.want) || want == Broken && got.Exchange == nil {
			t.Errorf("%s: penalty is %s: %s\n%s", name, got.Verdict, got.Detail, table(r))
		}
		if name == "right" && r.Broken() {
			t.Errorf("the server is right:\n%s", table(r))
		}
	}
}

// The plan says what a penalty takes.
func TestThePlanHasThePenalty(t *testing.T) {
	f, err := policyfile.Parse("policy.yaml", []byte(penalizedBy("ip")))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(newNetwork().options(f.Policy))
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(plan.Lines); !strings.Contains(text, "5 refusals per minute begin its penalty of 30 seconds, which is waited for") || !strings.Contains(text, "about 30s") {
		t.Errorf("the plan: %q", plan.Lines)
	}
}

// What is sent in a penalty and answered after its end proves nothing. Other limiters' requests
// delay it, not in each of these runs.
func TestARequestThatOutlivesAPenaltyProvesNothing(t *testing.T) {
	w := world{
		policy: `limiters:
  - name: things
    routes: [POST /things]
    chosen: yes
    windows: ["39 per 2 seconds by claim:sid or ip", "39 per 10 seconds by ip+query:tenant"]
    exempt: [198.51.100.7]
  - name: deep
    routes: [/deep/*]
    windows: ["2 per 7 seconds by ip"]
    penalty: {after: 30 refusals per 61 seconds, refuse_for: 6 seconds}
  - name: a
    routes: [GET /a/*]
    chosen: yes
    windows: ["8 per 2 seconds by ip+agent", "50 per 10 seconds by ip+query:tenant"]
    exempt: [198.51.100.7]
`,
		latency: 700 * time.Millisecond, real: true, workers: 2,
	}
	for seed := range uint64(40) {
		if problem := w.verify(t, seed); problem != "" {
			t.Fatalf("seed %d: %s", seed, problem)
		}
	}
}
