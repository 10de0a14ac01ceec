package policyfile

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// plans is the one mapping of a policy whose keys are the operator's own words: by, and a key for
// each plan.
type plans struct {
	by   string
	list []namedPlan // in the order of the file
}

// A namedPlan is a plan with its rates as texts.
type namedPlan struct {
	name  string
	rates []string
	one   bool // its only rate is not in a list
}

const (
	plansForm = "write plans as: {by: claim:plan, gold: 600 per minute, free: 60 per minute}"
	planBy    = "by"
)

// maxRates bounds the rates of one plan that are read. Package weir checks the exact number.
const maxRates = 10 * weir.MaxWindows

// plans reads n into p. It checks types and repeated keys; limiterPlans parses the texts.
func (d *reading) plans(n ast.Node, p *plans, path string) {
	values, ok := mappingOf(n)
	if !ok {
		d.wrongType(n, path, "a mapping", plansForm)
		return
	}
	if len(values) > weir.MaxPlans+1 {
		d.fail(path, "", "generate fewer", "plans has %d fields: at most %d plans are allowed", len(values), weir.MaxPlans)
		return
	}
	lines := make(map[string]int, len(values))
	for _, pair := range values {
		key := pair.Key.GetToken()
		if pair.Key.IsMergeKey() || pair.Key.Type() == ast.AliasType {
			continue // reported already
		}
		at, inner := placeOf(key), within(path, key.Value)
		if first := lines[key.Value]; first > 0 {
			d.failed[path] = true
			d.report(at, inner, key.Value, "remove one of the two", "%q occurs twice: it is already on line %d", excerpt(key.Value), first)
			continue
		}
		lines[key.Value] = at.line
		switch {
		case key.Value == planBy:
			p.by, _ = d.planText(pair.Value, inner)
		case !weir.IsPlanName(key.Value):
			d.failed[path] = true
			name := withoutToken(key.Value)
			d.report(at, within(path, name), name, plansForm, "plan %q: letters, digits, dots, dashes and underscores are allowed, at most 64", excerpt(name))
		default:
			p.list = append(p.list, d.plan(pair.Value, key.Value, inner))
		}
	}
}

// plan reads the rates of one plan: a text, or a list of texts.
func (d *reading) plan(n ast.Node, name, path string) namedPlan {
	p := namedPlan{name: name}
	list, ok := unwrap(n).(*ast.SequenceNode)
	if !ok {
		text, _ := d.planText(n, path)
		p.rates, p.one = []string{text}, true
		return p
	}
	d.at[path] = nodePlace(list)
	if len(list.Values) > maxRates {
		d.fail(path, "", "give one for each length of a window", "plan %q has %d rates: at most %d are allowed", name, len(list.Values), weir.MaxWindows)
		return p
	}
	for i, item := range list.Values {
		text, _ := d.planText(item, fmt.Sprintf("%s[%d]", path, i))
		p.rates = append(p.rates, text)
	}
	return p
}

// planText reads one text, and reports whether it is usable.
func (d *reading) planText(n ast.Node, path string) (text string, ok bool) {
	n = unwrap(n)
	d.at[path] = nodePlace(n)
	if n == nil || n.Type() == ast.AliasType {
		d.failed[path] = true // checkTokens has reported it
		return "", false
	}
	s, ok := n.(*ast.StringNode)
	switch {
	case !ok:
		d.wrongType(n, path, "text", plansForm)
	case strings.ContainsAny(strings.TrimSpace(s.Token.Origin), "\r\n"):
		d.fail(path, s.Value, "write it on one line", "%s continues over several lines: a text must be on one line", lastField(path))
	case len(s.Value) > MaxText:
		d.fail(path, s.Value, "shorten it", "%s is %d bytes long: at most %d are allowed", lastField(path), len(s.Value), MaxText)
	default:
		return s.Value, true
	}
	return "", false
}

// limiterPlans parses the plans of a limiter. If any of them is unusable, the policy has none of
// them: they would be reported a second time.
func (d *reading) limiterPlans(l *limiter, windows []weir.Window, path string) (out weir.Plans) {
	p := &l.Plans
	path += ".plans"
	if !d.written(path) {
		return out
	}
	if _, ok := d.at[within(path, planBy)]; !ok {
		d.fail(path, "", "add it, such as: by: "+likelyPlanBy(string(l.Requires), windows), "plans without by: it says where a caller's plan is read: %s are allowed", weir.ByForms)
		return out
	}
	usable := !d.failed[within(path, planBy)]
	if usable {
		var err error
		if out.By, err = weir.ParsePlanBy(p.by); err != nil {
			d.fail(within(path, planBy), p.by, planByHint(p.by), "%v", err)
			usable = false
		}
	}
	for _, plan := range p.list {
		parsed := weir.Plan{Name: plan.name}
		at := within(path, plan.name)
		usable = usable && !d.failed[at]
		for i, text := range plan.rates {
			item := at
			if !plan.one {
				item = fmt.Sprintf("%s[%d]", at, i)
			}
			if d.failed[item] {
				usable = false
				continue
			}
			r, err := weir.ParseRate(text)
			if err != nil {
				d.fail(item, text, rateHint(text), "plan %q: %v", plan.name, err)
				usable = false
				continue
			}
			parsed.Rates = append(parsed.Rates, r)
		}
		out.List = append(out.List, parsed)
	}
	if !usable {
		d.failed[path] = true
		return weir.Plans{}
	}
	return out
}

// planPath returns the path in the document of a problem with a plan of l: its rate, if the
// problem's value is one, else the plan.
func (d *reading) planPath(path string, l *weir.Limiter, x weir.Problem) string {
	plan := &l.Plans.List[x.Index]
	path = within(path, plan.Name)
	if _, whole := d.at[path+"[0]"]; !whole {
		return path
	}
	if i := slices.IndexFunc(plan.Rates, func(r weir.Rate) bool { return r.String() == x.Value }); i >= 0 {
		return fmt.Sprintf("%s[%d]", path, i)
	}
	return path
}

// likelyPlanBy returns where the plans of a limiter are probably read: from the credential that it
// requires or counts by, or beside the field that it counts by.
func likelyPlanBy(requires string, windows []weir.Window) string {
	sources := []string{requires}
	for _, w := range windows {
		for _, part := range w.Key {
			sources = append(sources, part...)
		}
	}
	by := "claim:plan"
	for _, source := range sources {
		switch base, _ := weir.SplitSource(source); {
		case weir.SourceOf(source).Credential() == identity.Token:
			return identity.Token
		case weir.SourceOf(source).Credential() == identity.Session:
			return "claim:plan"
		case base == identity.Header:
			by = "header:X-Plan"
		}
	}
	return by
}

// planByHint returns advice on a by that cannot be parsed.
func planByHint(s string) string {
	switch base, _ := weir.SplitSource(strings.ToLower(s)); base {
	case "claim", "header":
		return "such as: by: claim:plan, or by: header:X-Plan"
	case "session", "jwt":
		return "name the claim: by: claim:plan"
	case "ip", "agent", "everyone", "cookie", "query", "path", "host":
		return "a plan is a verified word about the caller: by: claim:plan, by: token, or by: header:X-Plan from a trusted proxy"
	}
	return didYouMean(s, []string{"token"})
}

// rateHint returns advice on a rate that cannot be parsed, or "" if the error is enough.
func rateHint(s string) string {
	if head, _, ok := strings.Cut(s, " by "); ok {
		if _, err := weir.ParseRate(head); err == nil {
			return "a plan changes the limit and not the key: " + head
		}
	}
	if hint, ok := strings.CutSuffix(windowHint(s), " by ip"); ok {
		return hint
	}
	if s == "unlimited" || s == "none" || s == "exempt" {
		return fmt.Sprintf("write a limit that is high enough: %d per minute is the highest", weir.MaxLimit)
	}
	return windowHint(s)
}

// plainBy matches a by that needs no quotes: its colon is within a word.
var plainBy = regexp.MustCompile(`^(?:token|(?:claim|header):[A-Za-z0-9][A-Za-z0-9._-]*)$`)

// writePlans writes the plans of a limiter: a line for each.
func writePlans(b *bytes.Buffer, p *weir.Plans) {
	if p.By == "" && len(p.List) == 0 {
		return
	}
	by := p.By
	if !plainBy.MatchString(by) {
		by = scalar(by)
	}
	fmt.Fprintf(b, "    plans:\n      by: %s\n", by)
	for _, plan := range p.List {
		fmt.Fprintf(b, "      %s: ", scalar(plan.Name))
		if len(plan.Rates) == 1 {
			fmt.Fprintf(b, "%s\n", scalar(plan.Rates[0].String()))
			continue
		}
		texts := make([]string, len(plan.Rates))
		for i, r := range plan.Rates {
			texts[i] = scalar(r.String())
		}
		fmt.Fprintf(b, "[%s]\n", strings.Join(texts, ", "))
	}
}
