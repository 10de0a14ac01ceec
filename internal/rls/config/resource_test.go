package config

import (
	"fmt"
	"strings"
	"testing"

	limits "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
)

func per(unit limits.RateLimitUnit) *limits.RateLimitPolicy {
	return &limits.RateLimitPolicy{Unit: unit, RequestsPerUnit: 3}
}

// below returns a descriptor a=1 with others below it.
func below(d ...*limits.RateLimitDescriptor) []*limits.RateLimitDescriptor {
	return []*limits.RateLimitDescriptor{{Key: "a", Value: "1", Descriptors: d}}
}

// A resource of a control plane has no file and no lines: its name, its domain and the entries that
// lead to the descriptor are what the operator of the control plane can look for.
func TestAProblemOfAResourceNamesItsDescriptor(t *testing.T) {
	day, eon := limits.RateLimitUnit_DAY, limits.RateLimitUnit(9)
	deep := below()
	for range MaxDepth {
		deep = below(deep...)
	}
	for _, c := range []struct {
		kind string
		all  []*limits.RateLimitConfig
		want string
	}{
		{"a unit", []*limits.RateLimitConfig{{Name: "r", Domain: "d", Descriptors: below(&limits.RateLimitDescriptor{Key: "user", RateLimit: per(eon)})}},
			`resource "r" of domain "d": descriptor a=1 > user: unit "9" is unknown: second, minute, hour, day, week and month are allowed`},
		{"no unit", []*limits.RateLimitConfig{{Name: "r", Domain: "d", Descriptors: below(&limits.RateLimitDescriptor{Key: "b", Value: "2", RateLimit: &limits.RateLimitPolicy{}})}},
			`resource "r" of domain "d": descriptor a=1 > b=2: rate_limit without a unit: add it, such as: unit: minute`},
		{"unlimited", []*limits.RateLimitConfig{{Name: "r", Domain: "d", Descriptors: []*limits.RateLimitDescriptor{{Key: "a", RateLimit: &limits.RateLimitPolicy{Unit: day, Unlimited: true}}}}},
			`resource "r" of domain "d": descriptor a: unit "DAY" of an unlimited descriptor: remove one of the two`},
		{"no key", []*limits.RateLimitConfig{{Name: "r", Domain: "d", Descriptors: below(&limits.RateLimitDescriptor{Value: "2"})}},
			`resource "r" of domain "d": descriptor a=1 > (no key)=2: a descriptor without a key: add it, such as: key: remote_address`},
		{"a star in a key", []*limits.RateLimitConfig{{Name: "r", Domain: "d", Descriptors: below(&limits.RateLimitDescriptor{Key: "b*"})}},
			`resource "r" of domain "d": descriptor a=1 > b*: key "b*": only a value can have a star`},
		{"twice", []*limits.RateLimitConfig{{Name: "r", Domain: "d", Descriptors: below(&limits.RateLimitDescriptor{Key: "b"}, &limits.RateLimitDescriptor{Key: "b"})}},
			`resource "r" of domain "d": descriptor a=1 > b: descriptor b occurs twice: resource "r" of domain "d" has it already`},
		{"replaces itself", []*limits.RateLimitConfig{{Name: "r", Domain: "d", Descriptors: []*limits.RateLimitDescriptor{{Key: "a", RateLimit: &limits.RateLimitPolicy{Unit: day, Name: "n", Replaces: []*limits.RateLimitReplace{{Name: "n"}}}}}}},
			`resource "r" of domain "d": descriptor a: the limit "n" replaces itself: name another one`},
		{"too deep", []*limits.RateLimitConfig{{Name: "r", Domain: "d", Descriptors: deep}},
			`resource "r" of domain "d": descriptor ` + strings.Repeat("a=1 > ", MaxDepth-1) + "a=1: descriptors are nested more than 64 deep, which is the max"},
		{"no domain", []*limits.RateLimitConfig{{Name: "r"}}, `resource "r": no domain: add it, such as: domain: edge`},
		{"no name", []*limits.RateLimitConfig{{Domain: "c"}, {Domain: "d", Descriptors: []*limits.RateLimitDescriptor{{Key: "*"}}}},
			`resource 1 of domain "d": descriptor *: key "*": only a value can have a star`},
		{"a domain twice", []*limits.RateLimitConfig{{Name: "r", Domain: "d"}, {Name: "s", Domain: "d"}},
			`resource "s" of domain "d": domain "d" occurs twice: resource "r" of domain "d" has it already; give each domain one resource, or join them with --rls-merge-domains`},
	} {
		files := make([]File, len(c.all))
		for i, r := range c.all {
			files[i] = OfResource(r, i)
		}
		if _, err := Parse(files, Options{}); fmt.Sprint(err) != c.want {
			t.Errorf("%s: %v\nwant %s", c.kind, err, c.want)
		}
	}
}

func TestAResourceIsReadAsTheFileThatItMeans(t *testing.T) {
	c, err := Parse([]File{OfResource(&limits.RateLimitConfig{Name: "r", Domain: "edge", Descriptors: []*limits.RateLimitDescriptor{
		{Key: "method", Value: "p*", RateLimit: per(limits.RateLimitUnit_WEEK)},
		{Key: "method", DetailedMetric: true, Descriptors: []*limits.RateLimitDescriptor{
			{Key: "user", Value: "null", ShadowMode: true, RateLimit: &limits.RateLimitPolicy{
				Unit: limits.RateLimitUnit_HOUR, RequestsPerUnit: 4_000_000_000, Name: "n", Replaces: []*limits.RateLimitReplace{{Name: "other"}}}},
		}},
		{Key: "free", RateLimit: &limits.RateLimitPolicy{Unlimited: true}},
	}}, 0)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	root := c.Domain("edge")
	if n, found := root.Step("method", "post"); found != Wildcard || n.Rule.Unit != Week || n.Rule.Requests != 3 {
		t.Errorf("method=post leads to %v %+v", found, n)
	}
	method, _ := root.Step("method", "get")
	user, found := method.Step("user", "null")
	if found != Exact {
		t.Fatalf("user=null leads to %v", found)
	}
	r := user.Rule
	if got := fmt.Sprintln(r.Path, r.Requests, r.Unit, r.Name, r.Replaces, r.ShadowMode, r.File, r.Line); got != "[edge method user_null] 4000000000 hour n [other] true resource \"r\" of domain \"edge\" 0\n" {
		t.Error(got)
	}
	if free, _ := root.Step("free", "x"); !free.Rule.Unlimited {
		t.Error("free is limited")
	}
}
