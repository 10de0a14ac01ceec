package policyfile

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/weirlimit/weir"
)

// These types define the fields of a policy file. The reader and the JSON Schema are both derived
// from them. A field without omitempty is required. Hints and editors show its tag "like" as an
// example.

type document struct {
	Limiters []limiter        `json:"limiters" like:"[{name: api, routes: [/*], windows: [60 per minute by ip]}]" jsonschema:"Every limiter of the policy. Their order has no effect."`
	Messages map[string]texts `json:"messages,omitempty" like:"{slow-down: {en: Please slow down.}}" jsonschema:"Texts of your own for the answers below, by name and by language (BCP 47). English is required. Placeholders: {limiter}, {limit}, {retry_after}, {reset}, {reason}."`
	Answers  answers          `json:"answers,omitempty" like:"{refused: {message: slow-down}}" jsonschema:"How requests are answered that end at a limiter."`
}

type limiter struct {
	Name           name        `json:"name" like:"widget-leads" jsonschema:"Names the limiter in keys, headers, logs and metrics. Counts are stored under this name: a renamed limiter starts from zero."`
	Routes         []route     `json:"routes,omitempty" like:"[POST /api/v1/widget/leads, /v1/wp/*]" jsonschema:"The requests that the limiter covers: [METHOD] [HOST]/path, with a star at the end for all that begins so. The most specific route of all limiters wins."`
	Windows        []window    `json:"windows,omitempty" unless:"in_flight" like:"[60 per minute by ip]" jsonschema:"The windows that each request is charged to: all of them, or none if one is full."`
	Cost           cost        `json:"cost,omitempty" like:"1" jsonschema:"Units that one request spends. The default is 1. A mapping if the cost is known only from the response, or from the request."`
	Count          count       `json:"count,omitempty" like:"{status: [401, 403]}" jsonschema:"Which requests are counted, by the status of their response: status or not. Each is counted while it is served, and given back if it is not to be counted. By default all are counted."`
	InFlight       inFlight    `json:"in_flight,omitempty" like:"10 by ip" jsonschema:"How many requests may be under way at the same time, beside the windows: LIMIT by KEY. A request holds its place until its response has ended."`
	Requires       requires    `json:"requires,omitempty" like:"session" jsonschema:"The credential that a caller must have: session, token or cert. A request without a verified one is counted by IP address and answered 401. By default every caller is let in."`
	Chosen         yes         `json:"chosen,omitempty" like:"yes" jsonschema:"yes: windows may count by a value that the caller chooses alone, such as header:X-Api-Key. The caller has a new budget for each value that it makes up, and can spend another's. Without it such a window is an error."`
	Message        message     `json:"message,omitempty" like:"bulk-sync" jsonschema:"The name of the text in a 429 response: one of messages, or of the catalogue (widget, bulk-sync, general)."`
	Mode           mode        `json:"mode,omitempty" like:"shadow" jsonschema:"enforce (the default) or shadow. In shadow mode the limiter counts and reports what it would have refused, has no effect that a caller can see, and the next limiter that matches decides."`
	Align          align       `json:"align,omitempty" like:"clock" jsonschema:"request (the default) or clock. With clock, windows of a fixed length begin at its whole multiples since 1970-01-01 00:00 UTC, for all callers at once. Calendar windows ignore it."`
	Penalty        penalty     `json:"penalty,omitempty" like:"{after: 20 refusals per minute, refuse_for: 15 minutes}" jsonschema:"Refuses a caller everything of the limiter for a time, because the limiter has refused it often. It counts by the key of the first window. By default there is none."`
	Exempt         []who       `json:"exempt,omitempty" like:"[10.0.0.0/8, token 3fk2mq7a4c]" jsonschema:"Callers that are counted but never refused: networks, addresses, files of networks (\"@office.txt\", in quotes), or the public ids of API tokens."`
	Deny           []who       `json:"deny,omitempty" like:"[198.51.100.0/24, '@blocked.txt']" jsonschema:"Callers that are answered 403 and not counted, also if they are exempt: networks, addresses, files of networks (\"@blocked.txt\", in quotes), or the public ids of API tokens."`
	Overrides      []override  `json:"overrides,omitempty" like:"[600 per minute for token 3fk2mq7a4c]" jsonschema:"Other limits for some callers. Each replaces the limits of the windows that have the same length, or the same calendar unit."`
	Plans          plans       `json:"plans,omitempty" like:"{by: claim:plan, gold: 600 per minute}" jsonschema:"Other limits by the caller's plan. by is where a plan is read: claim:NAME of a verified session, token, or header:NAME that a trusted proxy writes. Each other key is a plan: LIMIT per [N] UNIT or a list of those, which replace the limits of the windows that have the same length, or the same calendar unit. An unknown plan has the windows' own limits."`
	Answers        answered    `json:"answers,omitempty" like:"usage" jsonschema:"usage: Weir itself answers the requests of these routes, with the state of the caller's windows. They are not forwarded."`
	Notify         []percent   `json:"notify,omitempty" like:"[75, 90, 100]" jsonschema:"Percentages of a window's limit, in rising order. The request that brings the count of a window to one of them makes an event."`
	OnStoreFailure failureMode `json:"on_store_failure,omitempty" like:"local" jsonschema:"What the limiter does while the store does not answer: local counts in this process under the same limits, allow admits every request, deny answers 503. After \"pocket or\", the units that this node has leased are given out first; pocket alone is pocket or deny."`
}

type penalty struct {
	After     refusals `json:"after" like:"20 refusals per minute" jsonschema:"How many refusals begin the penalty. Their time begins with the first of them."`
	RefuseFor length   `json:"refuse_for" like:"15 minutes" jsonschema:"How long the penalty is, from the refusal that begins it. Requests during the penalty do not prolong it."`
}

type (
	name        string
	route       string
	window      string
	message     string
	failureMode string
	mode        string
	align       string
	requires    string
	yes         string
	who         string
	override    string
	answered    string
	percent     int64
	refusals    string
	length      string
	units       int64
)

// otherNames maps words from other products to the fields that they correspond to.
var otherNames = map[string]string{
	"limit": "windows", "limits": "windows", "rate": "windows", "rates": "windows", "quota": "windows", "per": "windows",
	"by": "windows", "key": "windows", "keys": "windows", "period": "windows",
	"path": "routes", "paths": "routes", "match": "routes", "method": "routes", "methods": "routes", "endpoints": "routes",
	"host": "routes", "hosts": "routes", "hostname": "routes", "domain": "routes", "domains": "routes", "server_name": "routes", "site": "routes", "sites": "routes",
	"whitelist": "exempt", "allowlist": "exempt", "allow": "exempt", "skip": "exempt", "except": "exempt", "bypass": "exempt",
	"blacklist": "deny", "denylist": "deny", "blocklist": "deny", "block": "deny", "blocked": "deny", "ban": "deny", "banned": "deny", "reject": "deny", "forbid": "deny",
	"override": "overrides", "exceptions": "overrides", "dry_run": "mode", "dryrun": "mode", "shadow": "mode", "shadow_mode": "mode",
	"auth": "requires", "authenticate": "requires", "authentication": "requires", "credential": "requires", "credentials": "requires",
	"require": "requires", "required": "requires",
	"alerts": "notify", "alert": "notify", "events": "notify", "thresholds": "notify", "warn": "notify", "answer": "answers",
	"caller_chooses": "chosen", "choose": "chosen", "untrusted": "chosen", "unverified": "chosen",
	"plan": "plans", "tiers": "plans", "tier": "plans", "subscriptions": "plans",
	"aligned": "align", "anchor": "align", "start": "align", "starts": "align",
	"lockout": "penalty", "jail": "penalty", "cooldown": "penalty", "punish": "penalty", "fail2ban": "penalty",
	"refusals": "after", "threshold": "after", "maxretry": "after", "findtime": "after", "for": "refuse_for", "duration": "refuse_for", "bantime": "refuse_for",
	"id": "name", "weight": "cost", "hits": "cost", "units": "cost", "tokens": "cost",
	"concurrency": "in_flight", "concurrent": "in_flight", "parallel": "in_flight", "max_concurrent": "in_flight", "connections": "in_flight", "simultaneous": "in_flight",
	"outcome": "count", "on_status": "count", "statuses": "status", "codes": "status", "code": "status", "only": "status", "ignore": "not",
	"reservation": "reserve", "estimate": "reserve", "actual": "from", "read": "from", "source": "from", "max": "at_most", "maximum": "at_most", "factor": "times", "add": "plus",
	"rules": "limiters", "zones": "limiters", "buckets": "limiters", "policies": "limiters", "rate_limits": "limiters",
}

// read parses tokens into doc and reports whether there is a usable document. The paths of its
// unusable values are in d.failed.
func (d *reading) read(tokens token.Tokens, doc *document) bool {
	body, ok := d.body(tokens)
	if !ok {
		return false
	}
	d.value(body, reflect.ValueOf(doc).Elem(), "")
	return !d.failed[""]
}

// body parses tokens into the one document of the file. It is false if there is none.
func (d *reading) body(tokens token.Tokens) (ast.Node, bool) {
	file, err := parse(tokens)
	if err != nil {
		if len(d.problems) > 0 {
			return nil, false // a problem reported earlier may be the cause
		}
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) {
			d.syntax(syntax.Token, syntax.Message)
		} else {
			d.report(place{}, "", "", d.kind.syntax(""), "not YAML: %v", err)
		}
		return nil, false
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil || file.Docs[0].Body.Type() == ast.NullType {
		d.report(place{}, "", "", d.kind.start, "the file is empty: a %s", d.kind.holds)
		return nil, false
	}
	return file.Docs[0].Body, true
}

// parse runs the YAML parser on untrusted input and turns a panic of the parser into an error.
func parse(tokens token.Tokens) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			file, err = nil, fmt.Errorf("the parser panicked (%v)", r)
		}
	}()
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// value reads n into v. It reports every problem and marks the paths of unusable values as failed.
func (d *reading) value(n ast.Node, v reflect.Value, path string) {
	n = unwrap(n)
	d.at[path] = nodePlace(n)
	if n == nil || n.Type() == ast.AliasType {
		d.failed[path] = true // checkTokens has reported it
		return
	}
	switch v := v.Addr().Interface().(type) {
	case *plans:
		d.plans(n, v, path)
		return
	case either:
		d.either(n, v, path)
		return
	case *count:
		d.statuses(n, v, path)
		return
	case *outcome:
		d.outcome(n, v, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.fields(n, v, path)
	case reflect.Slice:
		d.items(n, v, path)
	case reflect.Map:
		d.entries(n, v, path)
	case reflect.Int64:
		d.number(n, v, path)
	default:
		d.text(n, v, path)
	}
}

// unwrap returns the node under anchors and tags, which checkTokens has reported.
func unwrap(n ast.Node) ast.Node {
	for {
		switch x := n.(type) {
		case *ast.AnchorNode:
			n = x.Value
		case *ast.TagNode:
			n = x.Value
		default:
			return n
		}
	}
}

func (d *reading) fields(n ast.Node, v reflect.Value, path string) {
	values, ok := mappingOf(n)
	if !ok {
		d.wrongType(n, path, "a mapping", "fields are written \""+fieldOf(v.Type(), 0).name+": …\"")
		return
	}
	meant := make(map[string]bool) // fields that an unknown one is probably a misspelling of
	lines := d.pairs(values, path, func(key *token.Token, n ast.Node) {
		if f, ok := fieldNamed(v.Type(), key.Value); ok {
			d.value(n, v.Field(f.index), within(path, f.name))
			return
		}
		meant[d.unknownField(placeOf(key), within(path, key.Value), key.Value, v.Type())] = true
	})
	for i := range v.NumField() {
		f := fieldOf(v.Type(), i)
		if inner := within(path, f.name); f.required && lines[f.name] == 0 && lines[f.unless] == 0 {
			if d.failed[inner] = true; meant[f.name] {
				continue
			}
			d.at[inner] = d.at[path]
			d.fail(inner, "", fmt.Sprintf("add it, such as: %s: %s", f.name, f.like), "%q is missing: it is required", f.name)
		}
	}
}

// pairs calls each for every pair of a mapping, without those whose key occurred before, which it
// reports. It returns the line of each key.
func (d *reading) pairs(values []*ast.MappingValueNode, path string, each func(*token.Token, ast.Node)) map[string]int {
	lines := make(map[string]int)
	for _, pair := range values {
		key := pair.Key.GetToken()
		if pair.Key.IsMergeKey() || pair.Key.Type() == ast.AliasType {
			continue // reported already
		}
		at := placeOf(key)
		if first := lines[key.Value]; first > 0 {
			d.report(at, within(path, key.Value), key.Value, "remove one of the two", "%q occurs twice: it is already on line %d", excerpt(key.Value), first)
			continue
		}
		lines[key.Value] = at.line
		each(key, pair.Value)
	}
	return lines
}

// entries reads a mapping whose keys are names that the file chooses. checkTokens bounds their
// number.
func (d *reading) entries(n ast.Node, v reflect.Value, path string) {
	values, ok := mappingOf(n)
	if !ok {
		hint := "each entry is written \"name: …\"" + exampleOf(path)
		if v.Type() == reflect.TypeFor[texts]() {
			hint = "write a text for each language, such as: {en: Please slow down.}"
		}
		d.wrongType(n, path, "a mapping", hint)
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(values)))
	d.pairs(values, path, func(key *token.Token, n ast.Node) {
		entry := reflect.New(v.Type().Elem()).Elem()
		d.value(n, entry, within(path, key.Value))
		v.SetMapIndex(reflect.ValueOf(key.Value), entry)
	})
}

// unknownField reports an unknown field and returns the field that was probably meant, or "" if
// none is close.
func (d *reading) unknownField(at place, path, key string, t reflect.Type) string {
	if d.full() {
		d.more++
		return ""
	}
	allowed := fieldNames(t)
	meant, hint := closest(key, allowed), didYouMean(key, allowed)
	if f, ok := fieldNamed(t, otherNames[strings.ToLower(key)]); ok && meant == "" {
		meant, hint = f.name, fmt.Sprintf("did you mean %q? such as: %s: %s", f.name, f.name, f.like)
	}
	d.report(at, path, key, hint, "%q is not a field here: allowed: %s", excerpt(key), strings.Join(allowed, ", "))
	return meant
}

func (d *reading) items(n ast.Node, v reflect.Value, path string) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		hint := "write each item on a line of its own that begins with \"- \""
		if text, ok := scalarText(n); ok && text != "" {
			hint = fmt.Sprintf("put it in brackets: [%s]", excerpt(text))
			if strings.HasPrefix(text, "@") {
				hint = fmt.Sprintf("put it in brackets, in quotes: [%q]", excerpt(text))
			}
		}
		d.wrongType(n, path, "a list", hint)
		return
	}
	if allowed := d.reserve(v.Type(), len(list.Values)); allowed != "" {
		hint := "generate fewer; a route /path* covers every path that begins with /path"
		switch v.Type() {
		case reflect.TypeFor[[]outcome]():
			hint = "write a class of statuses, such as: 4xx"
		case reflect.TypeFor[[]percent]():
			hint = "keep those that you act on, such as: [75, 90, 100]"
		}
		d.fail(path, "", hint, "%s has %d items: at most %s are allowed", lastField(path), len(list.Values), allowed)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list.Values), len(list.Values)))
	for i, item := range list.Values {
		d.value(item, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
}

// reserve counts a list of type t with n items against the bounds of the file. If the list exceeds
// one, reserve returns how many items are allowed. Package weir checks the exact number of windows
// of a limiter; reserve only rejects lists that would take too long to compare.
func (d *reading) reserve(t reflect.Type, n int) (allowed string) {
	switch {
	case t == reflect.TypeFor[[]limiter]() && n > MaxLimiters:
		return strconv.Itoa(MaxLimiters)
	case t == reflect.TypeFor[[]window]() && n > 10*weir.MaxWindows:
		return strconv.Itoa(weir.MaxWindows)
	case t == reflect.TypeFor[[]outcome]() && n > weir.MaxStatuses:
		return strconv.Itoa(weir.MaxStatuses)
	case t == reflect.TypeFor[[]percent]() && n > weir.MaxNotify:
		return strconv.Itoa(weir.MaxNotify)
	case t == reflect.TypeFor[[]route]():
		if d.routes+n > MaxRoutes {
			return fmt.Sprintf("%d in all limiters together", MaxRoutes)
		}
		d.routes += n
	case t == reflect.TypeFor[[]who](), t == reflect.TypeFor[[]override]():
		if d.exceptions+n > MaxExceptions {
			return fmt.Sprintf("%d in exempt, deny and overrides of all limiters together", MaxExceptions)
		}
		d.exceptions += n
	}
	return ""
}

func (d *reading) text(n ast.Node, v reflect.Value, path string) {
	text, ok := n.(*ast.StringNode)
	if !ok {
		hint := "write it as text"
		if n.Type() == ast.MappingType || n.Type() == ast.MappingValueType {
			hint = "put it in quotes: in braces, a colon begins a value"
			switch v.Type() {
			case reflect.TypeFor[window]():
				hint = "write a window as text, such as: 60 per minute by ip"
			case reflect.TypeFor[answered]():
				hint = "a limiter has answers: usage, or none; texts and statuses are in answers at the top of the file, beside limiters"
			}
			if whole := cutAtColon(n); whole != "" {
				hint = fmt.Sprintf("put it in quotes: %q; in braces, YAML reads a colon as the end of a field's name", excerpt(whole))
			}
			if v.Type() == reflect.TypeFor[message]() {
				hint = "texts have a name and are in messages, at the top of the file: messages: {slow-down: {en: Please slow down.}}; " +
					"write that name here, such as: " + lastField(path) + ": slow-down"
			}
		}
		if value, ok := scalarText(n); ok && value != "" {
			hint = fmt.Sprintf("if you mean the text, put it in quotes: %q", excerpt(value))
			if v.Type() == reflect.TypeFor[yes]() {
				hint = chosenHint(value)
			}
			if n.Type() == ast.IntegerType && v.Type() == reflect.TypeFor[inFlight]() {
				hint = inFlightHint(value)
			}
			if n.Type() == ast.IntegerType && v.Type() == reflect.TypeFor[window]() {
				hint = "write a window as: 60 per minute by ip; a comma in brackets ends an item, so write 1000, not 1,000"
			}
		}
		d.wrongType(n, path, "text", hint)
		return
	}
	switch {
	case strings.ContainsAny(strings.TrimSpace(text.Token.Origin), "\r\n"):
		d.fail(path, text.Value, "write it on one line; is a colon or a dash missing on the line below?", "%s continues over several lines: a text must be on one line", lastField(path))
	case len(text.Value) > MaxText:
		d.fail(path, text.Value, "shorten it", "%s is %d bytes long: at most %d are allowed", lastField(path), len(text.Value), MaxText)
	default:
		v.SetString(text.Value)
	}
}

func (d *reading) number(n ast.Node, v reflect.Value, path string) {
	value, _ := scalarText(n)
	if n.Type() != ast.IntegerType {
		hint := "write it in digits, such as: 1"
		plain, sign := strings.CutSuffix(value, "%")
		plain = strings.TrimSpace(plain)
		if i, err := strconv.ParseInt(plain, 10, 32); err == nil && i > 0 && sign {
			hint = fmt.Sprintf("write it without the sign: %d", i)
		} else if err == nil && i > 0 {
			hint = fmt.Sprintf("write it without quotes: %d", i)
		} else if f, err := strconv.ParseFloat(plain, 64); err == nil && f >= 1 && f <= weir.MaxLimit {
			hint = fmt.Sprintf("write a whole number in digits: %d", int64(f))
		}
		d.wrongType(n, path, "a whole number", hint)
		return
	}
	i, err := strconv.ParseInt(value, 10, 64)
	if err != nil || strconv.FormatInt(i, 10) != value {
		d.fail(path, value, "write it in digits, such as: 1", "%s %q: a whole number in plain digits is allowed, 1 to %d", lastField(path), excerpt(value), weir.MaxLimit)
		return
	}
	v.SetInt(i)
}

func (d *reading) wrongType(n ast.Node, path, wanted, hint string) {
	value, _ := scalarText(n)
	what := lastField(path)
	if path == "" {
		what = "the file"
	}
	is := kindOf(n)
	if value != "" {
		is = fmt.Sprintf("%s (%s)", is, excerpt(value))
	}
	if n.Type() == ast.NullType && value == "" {
		is, hint = "empty", "give it a value"+exampleOf(path)
	}
	d.fail(path, value, hint, "%s is %s: %s is needed", what, is, wanted)
}
