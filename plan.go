package weir

import (
	"fmt"
	"strings"
	"time"
)

// Plans are other limits for callers by their plan, such as "gold" and "free". The zero value is no
// plans. A caller whose plan is not listed, or who has none, has the limits of the windows.
type Plans struct {
	// By is where a caller's plan is read: "claim:NAME" is a claim of a verified session, "token"
	// is the plan of a verified API token, and "header:NAME" is an HTTP field that a trusted proxy
	// writes. A plan is always somebody else's word about the caller, never its own.
	By   string
	List []Plan // 1 to MaxPlans, each with its own name
}

// A Plan is what callers of one plan have in place of the windows' limits.
type Plan struct {
	Name  string // letters, digits, dots, dashes and underscores, 1 to 64; case-sensitive
	Rates []Rate // one for each length of a window that differs
}

// A Rate is another limit of the windows of one length. It changes the same windows as an Override
// does: none that counts all callers together.
type Rate struct {
	Limit    int64         // 1 to MaxLimit
	Per      time.Duration // the length of a window of the limiter
	Calendar CalendarUnit  // the unit of a calendar window, in any zone; 0: no calendar window
	Requests bool          // of windows that count requests; otherwise of those that count units
}

// MaxPlans is the max number of plans of one limiter.
const MaxPlans = 1000

// A Planner is a caller that may have a plan. Keys without this method have no plan, and Inspect
// reports their plan as unknown.
type Planner interface {
	// Plan returns the caller's plan as Plans.By reads it. It is empty if the caller has none;
	// known is false if these Keys cannot tell. A plan must not be the caller's own word: what is
	// not verified is no plan.
	Plan(by string) (plan string, known bool)
}

// ByForms are the forms of Plans.By, for help and documentation.
const ByForms = "claim:NAME, token or header:NAME"

// maxPlanName is the max length of a plan's name in bytes.
const maxPlanName = 64

// ParsePlanBy parses Plans.By as a policy spells it, and returns its canonical form, in which one
// field has one spelling. The names after the colon are those of the key sources.
func ParsePlanBy(s string) (string, error) {
	base, name, named := strings.Cut(s, ":")
	var form nameForm
	switch {
	case s == tokenSource:
		return s, nil
	case base == "claim" && named:
		form = claimName
	case base == "header" && named:
		form = fieldName
	default:
		return "", fmt.Errorf("plans by %q: %s are allowed", s, ByForms)
	}
	name, err := nameForms[form].canonical(name)
	if err != nil {
		return "", fmt.Errorf("plans by %q: %w", s, err)
	}
	return base + ":" + name, nil
}

// IsPlanName reports whether s can be the name of a plan in a policy. A whole API token cannot,
// because names of plans are shown.
func IsPlanName(s string) bool {
	for _, c := range []byte(s) {
		if !isNameByte(c) {
			return false
		}
	}
	return s != "" && s != "by" && len(s) <= maxPlanName && !strings.HasPrefix(s, wholeToken)
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// ParseRate parses a rate as a policy spells it: LIMIT per [N] UNIT, or LIMIT per calendar UNIT.
func ParseRate(s string) (Rate, error) {
	limit, span, err := parseRate(s, "a rate is LIMIT per [N] UNIT, such as: 600 per minute")
	if err != nil {
		return Rate{}, fmt.Errorf("rate %q: %w", s, err)
	}
	r := Rate{limit, span.per, span.calendar.Unit, span.requests}
	if span.hasPlace() {
		return Rate{}, fmt.Errorf("rate %q: zone and day belong to the window: write %v", s, r)
	}
	return r, nil
}

// String returns the rate as a policy spells it.
func (r Rate) String() string {
	s := rate(r.Limit, r.Per, Calendar{Unit: r.Calendar})
	if r.Requests {
		return ofRequests(s)
	}
	return s
}

// Changes reports whether callers of a plan with this rate have its limit in a window of the
// limiter (see Override.Changes).
func (r Rate) Changes(w *Window) bool { return r.isAsLong(w) && !w.Key.Uses(everyoneSource) }

func (r Rate) isAsLong(w *Window) bool {
	return w.Per == r.Per && w.Calendar.Unit == r.Calendar && w.Requests == r.Requests
}

// Find returns the plan of a name, or nil.
func (p *Plans) Find(name string) *Plan {
	for i := range p.List {
		if p.List[i].Name == name {
			return &p.List[i]
		}
	}
	return nil
}

// Changes reports whether callers of any of the plans have another limit in a window.
func (p *Plans) Changes(w *Window) bool {
	for i := range p.List {
		if p.List[i].Of(w) > 0 {
			return true
		}
	}
	return false
}

// Of returns the limit that callers of the plan have in a window: 0 if it is the window's own.
func (p *Plan) Of(w *Window) int64 {
	for _, r := range p.Rates {
		if r.Changes(w) {
			return r.Limit
		}
	}
	return 0
}

func (p Plans) clone() Plans {
	p.List = append([]Plan(nil), p.List...)
	for i := range p.List {
		p.List[i].Rates = append([]Rate(nil), p.List[i].Rates...)
	}
	return p
}

// planned has the plans of a limiter, ready for its requests.
type planned struct {
	by  string
	few []planLimits           // all plans, if they are few: to compare them is 8 ns faster
	all map[string]*planLimits // by name
}

// planLimits are the limits of one plan for each window; 0: its own.
type planLimits struct {
	name   string
	limits [maxRows]int64
}

// maxFew is the max number of plans that are compared one by one.
const maxFew = 8

// newPlanned returns nil for a limiter without plans.
func newPlanned(l *Limiter) *planned {
	if len(l.Plans.List) == 0 {
		return nil
	}
	plans := make([]planLimits, len(l.Plans.List))
	p := &planned{by: l.Plans.By, all: make(map[string]*planLimits, len(plans))}
	for i := range plans {
		plans[i].name = l.Plans.List[i].Name
		for j := range min(len(l.Windows), MaxWindows) {
			plans[i].limits[j] = l.Plans.List[i].Of(&l.Windows[j])
		}
		p.all[plans[i].name] = &plans[i]
	}
	if len(plans) <= maxFew {
		p.few = plans
	}
	return p
}

// find returns the limits of the caller's plan, or nil if the caller has no plan that is listed.
func (p *planned) find(keys Keys) *[maxRows]int64 {
	who, ok := keys.(Planner)
	if !ok {
		return nil
	}
	name, _ := who.Plan(p.by)
	if name == "" {
		return nil
	}
	for i := range p.few {
		if p.few[i].name == name {
			return &p.few[i].limits
		}
	}
	if p.few == nil {
		if plan := p.all[name]; plan != nil {
			return &plan.limits
		}
	}
	return nil
}

// fill writes the limits of the caller's plan into those that no override has set.
func (p *planned) fill(keys Keys, limits *[maxRows]int64) {
	if own := p.find(keys); own != nil {
		for i, limit := range own {
			if limits[i] == 0 {
				limits[i] = limit
			}
		}
	}
}

// planOf returns the plan that limiter l reads of a caller if it is listed; known is false if l has
// plans and these Keys cannot tell.
func planOf(l *Limiter, keys Keys) (plan string, known bool) {
	if len(l.Plans.List) == 0 {
		return "", true
	}
	who, ok := keys.(Planner)
	if !ok {
		return "", false
	}
	plan, known = who.Plan(l.Plans.By)
	if l.Plans.Find(plan) == nil {
		plan = ""
	}
	return plan, known
}

func (c *checker) checkPlans(l *Limiter) {
	p := &l.Plans
	if p.By == "" && len(p.List) == 0 {
		return
	}
	switch by, err := ParsePlanBy(p.By); {
	case p.By == "":
		c.add("plans", -1, "", "plans without by: it says where a caller's plan is read: %s", ByForms)
	case err != nil:
		c.add("plans", -1, p.By, "%v", err)
	case by != p.By:
		c.add("plans", -1, p.By, "plans by %q: write it as %q, so that one field has one spelling", p.By, by)
	}
	if len(p.List) == 0 {
		c.add("plans", -1, "", "plans names no plan: add one, such as gold: 600 per minute")
	}
	if len(p.List) > MaxPlans {
		c.add("plans", -1, "", "%d plans: at most %d are allowed", len(p.List), MaxPlans)
		return
	}
	seen := make(map[string]bool, len(p.List))
	for i := range p.List {
		plan := &p.List[i]
		if !IsPlanName(plan.Name) {
			c.add("plans", i, plan.Name, "plan %q: letters, digits, dots, dashes and underscores are allowed, at most %d, and not the word by", plan.Name, maxPlanName)
		}
		if seen[plan.Name] {
			c.add("plans", i, plan.Name, "plan %q occurs twice: remove one", plan.Name)
		}
		seen[plan.Name] = true
		c.checkPlan(l, i, plan)
	}
}

func (c *checker) checkPlan(l *Limiter, i int, p *Plan) {
	if len(p.Rates) == 0 {
		c.add("plans", i, "", "plan %q has no rate: add one, such as 600 per minute", p.Name)
	}
	if len(p.Rates) > MaxWindows {
		c.add("plans", i, "", "plan %q has %d rates: one for each length of a window is allowed, at most %d", p.Name, len(p.Rates), MaxWindows)
		return
	}
	for j, r := range p.Rates {
		if r.Limit < 1 || r.Limit > MaxLimit {
			c.add("plans", i, r.String(), "limit %d of plan %q is out of range: 1 to %d is allowed", r.Limit, p.Name, MaxLimit)
		} else if l.leastLimit() > r.Limit && !r.Requests {
			c.add("plans", i, r.String(), "cost %d exceeds the limit of plan %q, %q: no request of these callers could ever be served; lower the cost or raise the limit", l.Cost, p.Name, r)
		}
		for _, before := range p.Rates[:j] {
			if before.Per == r.Per && before.Calendar == r.Calendar && before.Requests == r.Requests {
				c.add("plans", i, r.String(), "plan %q has two rates of one length, %q and %q: remove one", p.Name, before, r)
			}
		}
		c.checkChanges("plans", i, r.String(), l, r)
	}
}
