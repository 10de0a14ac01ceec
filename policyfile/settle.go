package policyfile

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/weirlimit/weir"
)

// A cost is a number of units, or a mapping that says where they are told.
type cost struct {
	number units
	fields *told // nil: number
}

type told struct {
	Reserve reserve `json:"reserve,omitempty" like:"4000" jsonschema:"The most that a request can cost. It is charged this before it is served. A number, or a mapping if the request itself tells. The default is 1."`
	From    from    `json:"from,omitempty" like:"json:usage.total_tokens" jsonschema:"Where the response tells what the request has cost: header:NAME, or json:PATH for a member of its JSON, also in the events of a stream. The difference to what was reserved is given back or charged then. A response that does not tell leaves what was reserved."`
}

// A reserve is a number of units, or a mapping that says where a request tells them.
type reserve struct {
	number units
	fields *asked // nil: number
}

type asked struct {
	From   from  `json:"from" like:"json:max_tokens" jsonschema:"Where the request tells its cost: header:NAME, or json:PATH for a member of its JSON body."`
	Times  units `json:"times,omitempty" like:"1" jsonschema:"What the number that the request tells is multiplied by. The default is 1."`
	Plus   units `json:"plus,omitempty" like:"500" jsonschema:"Units that are added to it. The default is 0."`
	AtMost units `json:"at_most" like:"8000" jsonschema:"The most that is reserved. It is reserved for a request that does not tell its cost, too."`
}

type count struct {
	Status []outcome `json:"status,omitempty" like:"[401, 403]" jsonschema:"Only requests whose response has one of these statuses are counted: 401, or 4xx for 400 to 499. The others are given back."`
	Not    []outcome `json:"not,omitempty" like:"[5xx]" jsonschema:"Requests whose response has one of these statuses are given back: 404, or 5xx for 500 to 599."`
}

type (
	from     string
	outcome  string
	inFlight string
)

// An either is a value that a file writes as a number or as a mapping.
type either interface {
	// parts returns a pointer to the number, and one to the mapping, which it makes.
	parts(mapping bool) any
	// like returns an example of the mapping, which reads a number from a place.
	like(from string) string
}

func (c *cost) parts(mapping bool) any {
	if mapping {
		c.fields = new(told)
		return c.fields
	}
	return &c.number
}

func (r *reserve) parts(mapping bool) any {
	if mapping {
		r.fields = new(asked)
		return r.fields
	}
	return &r.number
}

func (c *cost) like(from string) string    { return "{reserve: 4000, from: " + from + "}" }
func (r *reserve) like(from string) string { return "{from: " + from + ", at_most: 8000}" }

// either reads n into e.
func (d *reading) either(n ast.Node, e either, path string) {
	_, mapping := mappingOf(n)
	v := reflect.ValueOf(e.parts(mapping)).Elem()
	if mapping {
		d.whole(n, v, path)
		return
	}
	if text, ok := n.(*ast.StringNode); ok {
		if from, err := weir.ParseReading(text.Value); err == nil {
			d.wrongType(n, path, eitherForm, "such as: "+e.like(excerpt(from.String())))
			return
		}
	}
	if _, ok := scalarText(n); !ok && n.Type() != ast.NullType {
		d.wrongType(n, path, eitherForm, "such as: 5, or "+e.like("json:usage.total_tokens"))
		return
	}
	d.number(n, v, path)
}

const eitherForm = "a whole number or a mapping"

// statuses reads n into c.
func (d *reading) statuses(n ast.Node, c *count, path string) {
	if _, ok := mappingOf(n); ok {
		d.whole(n, reflect.ValueOf(c).Elem(), path)
		return
	}
	hint := "such as: {status: [401, 403]}, or {not: [5xx]}"
	text, _ := scalarText(n)
	switch s, err := weir.ParseStatuses(text); {
	case err != nil:
	case s.Low >= 500:
		hint = fmt.Sprintf("write: {not: [%v]} to count all others, or {status: [%v]}", s, s)
	default:
		hint = fmt.Sprintf("write: {status: [%v]}", s)
	}
	d.wrongType(n, path, "a mapping", hint)
}

// whole reads the fields of a mapping that is unusable if one of them is.
func (d *reading) whole(n ast.Node, v reflect.Value, path string) {
	before := d.reported()
	if d.fields(n, v, path); d.reported() > before {
		d.failed[path] = true
	}
}

// outcome reads a status, which is a number, or a class of them, which is text.
func (d *reading) outcome(n ast.Node, o *outcome, path string) {
	text, ok := scalarText(n)
	if !ok || n.Type() != ast.IntegerType && n.Type() != ast.StringType {
		d.wrongType(n, path, "a status", "write a status, such as: 401, or a class of them, such as: 5xx")
		return
	}
	*o = outcome(text)
}

// settling reads what a limiter learns of a request after it has admitted it.
func (d *reading) settling(l *limiter, out *weir.Limiter, path string) {
	if at := path + ".cost"; d.written(at) {
		d.cost(&l.Cost, out, at)
	}
	d.count(&l.Count, out, path)
	if at := path + ".in_flight"; d.written(at) {
		limit, err := weir.ParseInFlight(string(l.InFlight))
		if err != nil {
			d.fail(at, string(l.InFlight), inFlightHint(string(l.InFlight)), "%v", err)
		}
		out.InFlight = limit
	}
}

// cost reads a cost. If a part of it is unusable, the limiter has none: what follows from it would
// be reported a second time.
func (d *reading) cost(c *cost, out *weir.Limiter, path string) {
	if c.fields == nil {
		if out.Cost = int64(c.number); c.number == 0 {
			d.fail(path, "0", "leave it out if a request costs 1; to leave requests uncounted, remove the routes that match them",
				"cost 0 is out of range: 1 to %d is allowed", weir.MaxLimit)
		}
		return
	}
	from, reserve := path+".from", path+".reserve"
	before := d.reported()
	cost, reserved := d.reserved(&c.fields.Reserve, reserve)
	actual := d.place(from, c.fields.From)
	switch {
	case d.reported() > before:
		d.failed[path] = true
	case !d.written(from) && !d.written(reserve):
		d.fail(path, "", "such as: "+c.like("json:usage.total_tokens"), "cost says neither what a request reserves nor where its response tells what it has cost")
	case !d.written(from) && reserved == (weir.Reserve{}):
		d.fail(path, "", fmt.Sprintf("write cost: %d, or add from", cost), "cost reserves %d, but does not say from where it is told what the request has cost", cost)
	default:
		out.Cost, out.Reserve, out.Actual = cost, reserved, actual
	}
}

// reserved reads a reserve. It returns the most that is reserved too, 0 if that is not written.
func (d *reading) reserved(r *reserve, path string) (cost int64, out weir.Reserve) {
	if !d.written(path) {
		return 0, out
	}
	if r.fields == nil {
		return d.inRange(path, r.number, 1), out
	}
	a := r.fields
	out = weir.Reserve{From: d.place(path+".from", a.From), Times: d.inRange(path+".times", a.Times, 1), Plus: d.inRange(path+".plus", a.Plus, 0)}
	return d.inRange(path+".at_most", a.AtMost, 1), out
}

// inRange returns the number at path, and reports one that is out of range. One that is not written
// is 0.
func (d *reading) inRange(path string, n units, least int64) int64 {
	if d.written(path) && (int64(n) < least || n > weir.MaxLimit) {
		d.fail(path, strconv.FormatInt(int64(n), 10), "", "%s %d is out of range: %d to %d is allowed", lastField(path), n, least, weir.MaxLimit)
	}
	return int64(n)
}

// place returns the place of a number that is named at path, the zero value if none is.
func (d *reading) place(path string, f from) weir.Reading {
	if !d.written(path) {
		return weir.Reading{}
	}
	at, err := weir.ParseReading(string(f))
	if err != nil {
		d.fail(path, string(f), placeHint(string(f)), "from %v", err)
	}
	return at
}

// count reads which requests are counted.
func (d *reading) count(c *count, out *weir.Limiter, limiter string) {
	status := readItems(d, limiter, "count.status", c.Status, weir.ParseStatuses, statusHint)
	not := readItems(d, limiter, "count.not", c.Not, weir.ParseStatuses, statusHint)
	path := limiter + ".count"
	if !d.written(path) {
		return
	}
	_, hasStatus := d.at[path+".status"]
	_, hasNot := d.at[path+".not"]
	switch {
	case hasStatus && hasNot:
		d.fail(path, "", "remove one of the two", "count has status and not: exactly one of them is allowed")
	case len(c.Status)+len(c.Not) == 0:
		d.fail(path, "", "such as: {status: [401, 403]}, or {not: [5xx]}; without count, every request is counted", "count names no status")
	default:
		out.Count = weir.Count{Not: hasNot, Statuses: append(status, not...)}
	}
}

// countPath returns the path in the document of an element of a limiter's Count.Statuses.
func (d *reading) countPath(l *weir.Limiter, x weir.Problem) string {
	field := "count.status"
	if l.Count.Not {
		field = "count.not"
	}
	return fmt.Sprintf("limiters[%d].%s[%d]", d.policyAt.limiters[x.Limiter], field, d.policyAt.of(x.Limiter, field, x.Index))
}

// costPath returns the path in the document of the number that is a limiter's Cost.
func (d *reading) costPath(path string) string {
	for _, inner := range []string{".reserve.at_most", ".reserve"} {
		if d.written(path + inner) {
			return path + inner
		}
	}
	return path
}

// placeHint returns advice on a place of a number that cannot be parsed, or "" if the error is
// enough.
func placeHint(s string) string {
	base, name, _ := strings.Cut(s, ":")
	name = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(name), "$."), ".")
	switch base = strings.ToLower(strings.TrimSpace(base)); base {
	case "field", "response", "trailer":
		base = "header"
	case "body", "jsonpath", "usage", "request":
		base = "json"
	}
	meant := base + ":" + name
	switch {
	case strings.Contains(s, ":"):
	case strings.ContainsAny(s, "._"):
		meant = "json:" + strings.TrimPrefix(strings.TrimPrefix(s, "$."), ".")
	case strings.Contains(s, "-"):
		meant = "header:" + s
	}
	if at, err := weir.ParseReading(meant); err == nil {
		return "write: " + at.String()
	}
	return "such as: header:X-Cost, or json:usage.total_tokens"
}

// statusHint returns advice on statuses that cannot be parsed.
func statusHint(s string) string {
	low, _, ranges := strings.Cut(s, "-")
	if class := s + "   "; ranges && strings.HasSuffix(low, "00") || strings.ContainsAny(class[1:3], "xX*") {
		if _, err := weir.ParseStatuses(class[:1] + "xx"); err == nil {
			return "write: " + class[:1] + "xx"
		}
	}
	return "such as: 401, or 5xx for 500 to 599"
}

// inFlightHint returns advice on a limit in flight that cannot be parsed, or "" if the error is
// enough.
func inFlightHint(s string) string {
	if w, err := weir.ParseWindow(s); err == nil {
		return fmt.Sprintf("requests in flight have no time: %d by %v; a limit per time is one of windows", w.Limit, w.Key)
	}
	if _, err := weir.ParseInFlight(strings.TrimSpace(s) + " by ip"); err == nil {
		return "add the key to count by, such as: " + strings.TrimSpace(s) + " by ip"
	}
	return ""
}

// writeCost writes the cost of a limiter: a number, or a mapping on one line.
func writeCost(b *bytes.Buffer, l *weir.Limiter) {
	none := weir.Reading{}
	switch {
	case l.Reserve != (weir.Reserve{}):
		r := &l.Reserve
		fmt.Fprintf(b, "    cost: {reserve: {from: %s", placeText(r.From))
		if r.Times != 0 {
			fmt.Fprintf(b, ", times: %d", r.Times)
		}
		if r.Plus != 0 {
			fmt.Fprintf(b, ", plus: %d", r.Plus)
		}
		fmt.Fprintf(b, ", at_most: %d}", l.Cost)
	case l.Actual == none && l.Cost == 0:
		return
	case l.Actual == none:
		fmt.Fprintf(b, "    cost: %d\n", l.Cost)
		return
	case l.Cost == 0:
		fmt.Fprintf(b, "    cost: {from: %s}\n", placeText(l.Actual))
		return
	default:
		fmt.Fprintf(b, "    cost: {reserve: %d", l.Cost)
	}
	if l.Actual != none {
		fmt.Fprintf(b, ", from: %s", placeText(l.Actual))
	}
	b.WriteString("}\n")
}

// plainPlace matches a place that needs no quotes: its colon is within a word.
var plainPlace = regexp.MustCompile(`^(?:header|json):[A-Za-z0-9][A-Za-z0-9._-]*$`)

func placeText(r weir.Reading) string {
	if s := r.String(); plainPlace.MatchString(s) {
		return s
	}
	return scalar(r.String())
}

// writeCount writes which requests of a limiter are counted.
func writeCount(b *bytes.Buffer, c *weir.Count) {
	if len(c.Statuses) == 0 {
		return
	}
	field, all := "status", make([]string, len(c.Statuses))
	if c.Not {
		field = "not"
	}
	for i, s := range c.Statuses {
		all[i] = s.String()
	}
	fmt.Fprintf(b, "    count: {%s: [%s]}\n", field, strings.Join(all, ", "))
}
