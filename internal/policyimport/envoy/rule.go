package envoy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/rls/config"
)

// A rule is a limit of the configuration, as a policy says it.
type rule struct {
	route  weir.Route
	window weir.Window
	from   *config.Node
}

// rule translates a rule. It is false if a policy cannot have it, which is a problem then, or need
// not.
func (t *translation) rule(all []config.Entry, n *config.Node) (r rule, ok bool) {
	from := n.Rule
	switch {
	case from.QuotaMode:
		t.lost(n, "%s has quota_mode, which a policy does not have", last(all))
		return r, false
	case len(from.Replaces) > 0:
		t.lost(n, "%s replaces %s: a policy has exceptions (overrides, plans) and no limits that replace others", last(all), strings.Join(from.Replaces, ", "))
		return r, false
	case from.Requests == 0:
		t.lost(n, "%s admits nothing: a policy denies callers by name (deny), and no routes", last(all))
		return r, false
	case int64(from.Requests) > weir.MaxLimit:
		t.lost(n, "%s has %d requests_per_unit: at most %d are possible", last(all), from.Requests, weir.MaxLimit)
		return r, false
	}
	r.from = n
	p := spelling{prefix: true, path: "/"}
	for _, e := range all {
		if problem := p.add(e, t.meanings[e.Key]); problem != "" {
			t.lost(n, "%s", problem)
			return r, false
		}
	}
	slices.Sort(p.sources)
	key, err := weir.ParseKey(strings.Join(slices.Compact(p.sources), "+"))
	if len(p.sources) == 0 {
		key, err = weir.ParseKey("everyone")
	}
	if err == nil {
		r.route, err = weir.ParseRoute(p.String())
	}
	if err != nil {
		t.lost(n, "%s: %v", last(all), problemOf(err))
		return r, false
	}
	r.window = weir.Window{Limit: int64(from.Requests), Per: max(from.Unit.Per(), time.Second), Key: key}
	return r, true
}

// problemOf returns what is wrong with a route or a key, without its text.
func problemOf(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

// last names a descriptor by its last entry.
func last(all []config.Entry) string { return shown(all[len(all)-1]) }

func shown(e config.Entry) string {
	if e.Value == "" {
		return e.Key
	}
	return e.Key + "=" + e.Value
}

// A spelling is the route of a rule, and what it is counted by.
type spelling struct {
	method, host, path string
	prefix             bool
	sources            []string
}

// String returns the route as a policy spells it.
func (p *spelling) String() string {
	route := p.host + p.path
	if p.prefix {
		route += "*"
	}
	return strings.TrimSpace(p.method + " " + route)
}

// add adds an entry. It returns what a policy cannot say about it; empty: nothing.
func (p *spelling) add(e config.Entry, meaning string) (problem string) {
	stars := strings.Count(e.Value, "*")
	begin, isPrefix := strings.CutSuffix(e.Value, "*")
	switch {
	case meaning == "":
		return fmt.Sprintf("it is not known what key %s is: give --key %s=SOURCE, such as %s=ip or %s=header:X-User, or %s=path, %s=method or %s=host", e.Key, e.Key, e.Key, e.Key, e.Key, e.Key, e.Key)
	case e.Value == "" && (meaning == Path || meaning == Method):
		return fmt.Sprintf("%s without a value has a count for each value: a policy counts all requests of a route together", e.Key)
	case e.Value == "":
		p.sources = append(p.sources, meaning)
		return ""
	case meaning != Path && meaning != Method && meaning != Host:
		return fmt.Sprintf("%s is one value of key source %s: a policy names callers only in overrides, exempt and deny", shown(e), meaning)
	case stars > 1 || stars == 1 && !isPrefix || stars == 1 && meaning != Path:
		return fmt.Sprintf("%s has a star where a route cannot have one: only the end of a path can", shown(e))
	case stars == 1 && !e.Shared:
		return fmt.Sprintf("%s has a count for each value that its star matches: a policy counts all requests of a route together, as share_threshold does", shown(e))
	case meaning == Path && !strings.HasPrefix(e.Value, "/"):
		return fmt.Sprintf("%s: no path of a request begins so: it begins with a slash", shown(e))
	case strings.ContainsAny(e.Value, " {}"):
		i := strings.IndexAny(e.Value, " {}")
		return fmt.Sprintf("%s: no route has a %s with %q", shown(e), meaning, e.Value[i:i+1])
	case meaning != Path && strings.Contains(e.Value, "/"):
		return fmt.Sprintf("%s: no route has a %s with %q", shown(e), meaning, "/")
	case meaning == Method && p.method == "":
		p.method = e.Value
	case meaning == Host && p.host == "":
		p.host = e.Value
	case meaning == Path && p.path == "/" && p.prefix:
		p.path, p.prefix = begin, isPrefix
	default:
		return fmt.Sprintf("%s is a second %s: a route has one", shown(e), meaning)
	}
	return ""
}
