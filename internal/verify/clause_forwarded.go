package verify

import (
	"context"
	"strings"
)

// A claim is a field with a made-up value, or several lines of it. If its name begins with "?", it
// is a parameter of the query. No budget may depend on it.
type claim struct {
	name   string
	values []string
}

func (c claim) String() string {
	if strings.HasPrefix(c.name, "?") {
		return c.name + "=" + c.values[0]
	}
	return c.name + ": " + strings.Join(c.values, " | ")
}

// on returns the request with the claim in it.
func (c claim) on(r request) request {
	switch {
	case strings.HasPrefix(c.name, "?"):
		r.query = joined(r.query, "&", c.String()[1:])
		return r
	case len(c.values) == 1:
		return r.with(c.name, c.values[0])
	}
	r.lines = map[string][]string{c.name: c.values}
	return r
}

// forwardedFields are what a client may claim about where it comes from.
var forwardedFields = []claim{
	{"X-Forwarded-For", []string{"203.0.113.7"}}, {"X-Forwarded-For", []string{"203.0.113.8, 198.51.100.9"}}, {"X-Forwarded-For", []string{"127.0.0.1"}},
	{"X-Forwarded-For", []string{"203.0.113.19", "198.51.100.20"}},
	{"Forwarded", []string{"for=203.0.113.10"}}, {"X-Real-IP", []string{"203.0.113.11"}}, {"True-Client-IP", []string{"203.0.113.12"}},
	{"CF-Connecting-IP", []string{"203.0.113.13"}}, {"X-Client-IP", []string{"203.0.113.14"}}, {"X-Cluster-Client-IP", []string{"203.0.113.15"}},
	{"Fastly-Client-IP", []string{"203.0.113.16"}}, {"X-Originating-IP", []string{"203.0.113.17"}}, {"Via", []string{"1.1 203.0.113.18"}},
	{"Fly-Client-IP", []string{"203.0.113.21"}}, {"X-Envoy-External-Address", []string{"203.0.113.22"}}, {"X-Azure-ClientIP", []string{"203.0.113.23"}},
	{"X-Original-Forwarded-For", []string{"203.0.113.24"}}, {"X-Remote-IP", []string{"203.0.113.25"}}, {"X-Remote-Addr", []string{"203.0.113.26"}},
	{"X-Forwarded-Host", []string{"verify.example.com"}},
}

// checkForwarded sends main's request with each of the fields. All must be refused while main's
// budget is spent.
func checkForwarded(c *check) hooks {
	return hooks{
		needsRefusals: true,
		tries: func(ctx context.Context, t *tally) error {
			ended := false
			for _, f := range forwardedFields {
				a, got, err := c.attemptMain(ctx, t, f.on(c.plain()))
				if err != nil {
					return err
				}
				switch got {
				case escaped:
					c.broken(a, "answered %d with %s, while it is refused without (unless the verifier's own address is a trusted proxy's)", a.status, f)
					return nil
				case windowEnded:
					ended = true
				}
			}
			if ended {
				c.untested(NeedsMore.because("the window ended before all fields could be tested"))
				return nil
			}
			c.kept("refused with %d made-up fields", len(forwardedFields))
			return nil
		},
	}
}
