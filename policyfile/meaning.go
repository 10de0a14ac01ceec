package policyfile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
)

// indexes map the parts of the policy to their indexes in the document. They differ because values
// that are unusable are not in the policy.
type indexes struct {
	limiters []int
	lists    map[string][][]int // by field, for each limiter of the policy
}

// add records the document indexes of the items of a field of the next limiter.
func (x *indexes) add(field string, items []int) {
	if x.lists == nil {
		x.lists = make(map[string][][]int)
	}
	x.lists[field] = append(x.lists[field], items)
}

// of returns the index in the document of an item of a limiter's field.
func (x *indexes) of(limiter int, field string, item int) int { return x.lists[field][limiter][item] }

// policy converts doc to a policy and reports what breaks the rules of package weir.
func (d *reading) policy(doc *document) weir.Policy {
	d.messages = d.knownMessages(doc)
	p := weir.Policy{Responses: d.responses(doc)}
	for i := range doc.Limiters {
		path := fmt.Sprintf("limiters[%d]", i)
		if d.failed[path] {
			continue
		}
		d.policyAt.limiters = append(d.policyAt.limiters, i)
		p.Limiters = append(p.Limiters, d.limiter(&doc.Limiters[i], path))
	}
	p = d.readNetworks(p)
	for _, x := range p.Problems(d.reader.sources()) {
		d.policyProblem(p, doc, x)
	}
	return p
}

func (d *reading) limiter(l *limiter, path string) weir.Limiter {
	out := weir.Limiter{Name: string(l.Name), Message: string(l.Message)}
	out.Routes = readItems(d, path, "routes", l.Routes, ParseRoute, routeHint)
	out.Windows = readItems(d, path, "windows", l.Windows, weir.ParseWindow, windowHint)
	out.Exempt = readItems(d, path, "exempt", l.Exempt, weir.ParseWho, whoHint)
	out.Deny = readItems(d, path, "deny", l.Deny, weir.ParseWho, whoHint)
	out.Overrides = readItems(d, path, "overrides", l.Overrides, weir.ParseOverride, overrideHint)
	out.Plans = d.limiterPlans(l, out.Windows, path)
	out.Notify = d.percents(l, path)
	out.Penalty = d.penalty(&l.Penalty, path)
	d.settling(l, &out, path)
	d.options(l, &out, path)
	return out
}

// readItems parses a list of texts. It records the indexes of those that parse, and reports the
// others.
func readItems[S ~string, T any](d *reading, path, field string, texts []S, parse func(string) (T, error), hint func(string) string) (out []T) {
	var at []int
	for i, s := range texts {
		item := fmt.Sprintf("%s.%s[%d]", path, field, i)
		if d.failed[item] {
			continue
		}
		v, err := parse(string(s))
		if err != nil {
			d.fail(item, withoutToken(string(s)), hint(string(s)), "%v", err)
			continue
		}
		out, at = append(out, v), append(at, i)
	}
	d.policyAt.add(field, at)
	return out
}

// withoutToken returns s, or "" if s contains a whole API token, which is a secret and must not be
// printed.
func withoutToken(s string) string {
	if strings.Contains(s, "wpt_") {
		return ""
	}
	return s
}

// wellFormed matches the names that a message or a limiter may have.
var wellFormed = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)

// options reads the fields that have a default. It rejects a written value that a weir.Limiter
// cannot distinguish from a field that is left out.
func (d *reading) options(l *limiter, out *weir.Limiter, path string) {
	d.messageName(path+".message", string(l.Message))
	if at := path + ".requires"; d.written(at) {
		if requires := string(l.Requires); slices.Contains(weir.Credentials(), requires) {
			out.Requires = requires
		} else {
			d.fail(at, requires, requiresHint(requires), "requires %q: %s are allowed", excerpt(requires), strings.Join(weir.Credentials(), ", "))
		}
	}
	if at := path + ".answers"; d.written(at) {
		by, err := weir.ParseAnswerer(string(l.Answers))
		if err != nil {
			d.fail(at, string(l.Answers), "leave it out if what is behind the limiter answers", "%v", err)
		}
		out.Answers = by
	}
	if at := path + ".chosen"; d.written(at) {
		if out.Chosen = l.Chosen == "yes"; !out.Chosen {
			d.fail(at, string(l.Chosen), chosenHint(string(l.Chosen)), "chosen %q: yes is allowed", excerpt(string(l.Chosen)))
		}
	}
	if at := path + ".mode"; d.written(at) {
		mode, err := weir.ParseMode(string(l.Mode))
		if err != nil {
			d.fail(at, string(l.Mode), modeHint(string(l.Mode)), "%v", err)
		}
		out.Mode = mode
	}
	if at := path + ".align"; d.written(at) {
		align, err := weir.ParseAlign(string(l.Align))
		if err != nil {
			d.fail(at, string(l.Align), alignHint(string(l.Align)), "%v", err)
		}
		out.Align = align
	}
	if at := path + ".on_store_failure"; d.written(at) {
		mode, err := weir.ParseFailureMode(string(l.OnStoreFailure))
		if err != nil {
			d.fail(at, string(l.OnStoreFailure), failureHint(string(l.OnStoreFailure)), "%v", err)
		}
		out.OnStoreFailure = mode
	}
}

// percents reads the notify field.
func (d *reading) percents(l *limiter, path string) (out []int64) {
	var at []int
	if path := path + ".notify"; d.written(path) && len(l.Notify) == 0 {
		d.fail(path, "", "write percentages, such as: [75, 90, 100], or leave it out", "notify has no percentages: 1 to %d are allowed", weir.MaxNotify)
	}
	for i, p := range l.Notify {
		if !d.failed[fmt.Sprintf("%s.notify[%d]", path, i)] {
			out, at = append(out, int64(p)), append(at, i)
		}
	}
	d.policyAt.add("notify", at)
	return out
}

// written reports whether the document has a usable value at path.
func (d *reading) written(path string) bool {
	_, ok := d.at[path]
	return ok && !d.failed[path]
}

// policyProblem reports a problem of package weir at its place in the file, unless it only follows
// from one that was reported before.
func (d *reading) policyProblem(p weir.Policy, doc *document, x weir.Problem) {
	if d.full() {
		d.more++
		return
	}
	if x.Limiter < 0 && x.Field != "limiters" {
		d.responseProblem(x)
		return
	}
	if x.Limiter < 0 {
		if len(doc.Limiters) == 0 && !d.failed["limiters"] {
			d.report(d.at["limiters"], "limiters", x.Value, "'weir policy show' prints a policy to start from", "%s", x.Message)
		}
		return
	}
	l := p.Limiters[x.Limiter]
	path := fmt.Sprintf("limiters[%d]", d.policyAt.limiters[x.Limiter])
	at := d.at[path]
	if x.Field != "" {
		path += "." + x.Field
		if d.failed[path] {
			return
		}
		if x.Field == "windows" && x.Index < 0 && d.failed[fmt.Sprintf("limiters[%d].in_flight", d.policyAt.limiters[x.Limiter])] {
			return
		}
		if len(l.Windows) < len(doc.Limiters[d.policyAt.limiters[x.Limiter]].Windows) && dependsOnWindows(x) {
			return
		}
	}
	switch {
	case x.Field == "cost":
		path = d.costPath(path)
	case x.Index < 0:
	case x.Field == "plans":
		path = d.planPath(path, &l, x)
	case x.Field == "count":
		path = d.countPath(&l, x)
	default:
		path = fmt.Sprintf("%s[%d]", path, d.policyAt.of(x.Limiter, x.Field, x.Index))
	}
	if inner, ok := d.at[path]; ok {
		if d.isUnknownSource(x) { // it has no canonical form that the file should have
			written := inner.spelled(x.Value)
			x.Message = strings.Replace(x.Message, strconv.Quote(x.Value), strconv.Quote(written), 1)
			x.Value = written
		}
		at = inner.of(x.Value)
	}
	d.report(at, path, x.Value, d.hint(p, x), "%s", x.Message)
}

// dependsOnWindows reports whether a problem may end when a window of its limiter is corrected.
func dependsOnWindows(x weir.Problem) bool {
	switch x.Field {
	case "windows":
		return x.Index < 0
	case "chosen", "overrides", "plans":
		return true
	}
	return false
}

// responseProblem reports a problem of the policy's responses, at the innermost value of its path
// that the file has.
func (d *reading) responseProblem(x weir.Problem) {
	path := x.Field
	for {
		if d.failed[path] {
			return
		}
		if at, ok := d.at[path]; ok {
			d.report(at.of(x.Value), path, x.Value, "", "%s", x.Message)
			return
		}
		cut := strings.LastIndexByte(path, '.')
		if cut < 0 {
			d.report(place{}, path, x.Value, "", "%s", x.Message)
			return
		}
		path = path[:cut]
	}
}

// hint returns advice on a problem of package weir, or "".
func (d *reading) hint(p weir.Policy, x weir.Problem) string {
	switch {
	case x.Field == "name":
		for i, l := range p.Limiters[:x.Limiter] {
			if l.Name == x.Value && x.Value != "" {
				return fmt.Sprintf("the other is on line %d", d.at[fmt.Sprintf("limiters[%d]", d.policyAt.limiters[i])].line)
			}
		}
		if name := nameLike(x.Value); wellFormed.MatchString(name) {
			return "such as: " + name
		}
	case d.isUnknownSource(x):
		return sourceHint(x.Value, d.reader.sources())
	case x.Field == "routes" && x.Index >= 0:
		return d.sameRoute(p, x)
	case x.Field == "plans", x.Field == "overrides":
		return otherUnitHint(x.Value, p.Limiters[x.Limiter].Windows)
	}
	return ""
}

// isUnknownSource reports whether a problem is a key source that is not known.
func (d *reading) isUnknownSource(x weir.Problem) bool {
	return (x.Field == "windows" || x.Field == "in_flight") && strings.HasPrefix(x.Message, "key source ") && !d.reader.knows(x.Value)
}

// sameRoute returns a hint with the line of the earlier route that equals the problem's route.
func (d *reading) sameRoute(p weir.Policy, x weir.Problem) string {
	same := func(a, b weir.Route) bool {
		return a.Method == b.Method && a.Host == b.Host && a.Prefix == b.Prefix &&
			shapeOf(strings.TrimRight(a.Path, "/")) == shapeOf(strings.TrimRight(b.Path, "/"))
	}
	route := p.Limiters[x.Limiter].Routes[x.Index]
	for i, l := range p.Limiters[:x.Limiter+1] {
		for j, r := range l.Routes {
			if (i < x.Limiter || j < x.Index) && same(r, route) {
				at := d.at[fmt.Sprintf("limiters[%d].routes[%d]", d.policyAt.limiters[i], d.policyAt.of(i, "routes", j))]
				return fmt.Sprintf("the other is on line %d", at.line)
			}
		}
	}
	return ""
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// nameLike returns s in lower case, with dashes for all that a name cannot contain.
func nameLike(s string) string {
	return strings.Trim(notInName.ReplaceAllString(strings.ToLower(s), "-"), "-")
}

// lines returns the line that each limiter of p begins on.
func (d *reading) lines(p weir.Policy) []int {
	lines := make([]int, len(p.Limiters))
	for i := range lines {
		lines[i] = d.at[fmt.Sprintf("limiters[%d]", d.policyAt.limiters[i])].line
	}
	return lines
}
