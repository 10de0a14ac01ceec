package identity_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/weirlimit/weir/identity"
)

// If parsers of a query could find different agents, the agent is ambiguous and not
// counted by (D10).
func TestAnAgentThatParsersDisagreeOnIsAmbiguous(t *testing.T) {
	many := strings.Repeat("x&", 1000)
	for query, ambiguous := range map[string]bool{
		"":                                   false,
		"agent_id=a":                         false,
		"agent_id=a&x=1;y=2&z=%&q=100%":      false, // none of this is about the agent
		"agent_id=a&agent_id=a":              false,
		"agent_id=a&agent%5Fid=a":            false,
		"agent_id=a%20b&agent_id=a+b":        false,
		"agent_id=a&agent_ids=b":             false,
		"agent_id=a&my.agent_id=b":           false,
		"agent=a&agent-id=b&id=agent_id":     false,
		"agent_id=a%26agent_id%3Db":          false,
		"x%zz=agent_id&agent_id=a":           false,
		many[2:] + "agent_id=a":              false,
		many + "agent_id=a":                  true,
		"agent_id=a&agent_id=b":              true,
		"agent_id=&agent_id=b":               true,
		"agent_id&agent_id=b":                true,
		"agent_id=a&%61gent_id=b":            true,
		"agent_id=a;agent_id=b":              true,
		"agent_id=a;x=1":                     true,
		"agent_id;x=1":                       true,
		"x=1;agent_id=b":                     true,
		"agent_id=a&x=1;agent%5fid=b":        true,
		"agent_id=%zz":                       true,
		"agent_id=100%":                      true,
		"agent_id=%u0061":                    true,
		"agent_id=a&agent_id=%":              true,
		"Agent_Id=a":                         true,
		"agent_id=a&AGENT_ID=a":              true,
		"agent.id=a":                         true,
		"agent+id=a":                         true,
		"agent%20id=a":                       true,
		"+agent_id=a":                        true,
		"agent[id=a":                         true,
		"agent_id[]=a":                       true,
		"agent_id%5B0%5D=a":                  true,
		"agent_id%00x=a":                     true,
		"[agent_id]=a":                       true,
		"agent_id=a&%5Bagent_id%5D=b":        true,
		"agent_id=a&x=1&y=2&agent_id[key]=b": true,
	} {
		if got := identity.AgentIsAmbiguous(query); got != ambiguous {
			t.Errorf("%.60q: ambiguous %v, want %v", query, got, ambiguous)
		}
	}
}

// If a query is not ambiguous, it has one agent for every parser: one that splits
// only at "&" or also at ";", takes the first or the last value, and drops or keeps
// invalid pairs.
func FuzzOneAgentForEveryParser(f *testing.F) {
	for _, q := range []string{"agent_id=a", "agent_id=a;agent_id=b", "agent%5fid=a&agent_id=%zz", "x=1;y&agent_id=a", "agent.id=a", "a&agent_id"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		if identity.AgentIsAmbiguous(query) {
			return
		}
		counted, known := identity.QueryValue(query, "agent_id")
		if values, err := url.ParseQuery(query); err == nil && (values.Get("agent_id") != counted || values.Has("agent_id") != known) {
			t.Errorf("%q: counted by %q, %v; net/url reads %q", query, counted, known, values["agent_id"])
		}
		for _, split := range []func(rune) bool{
			func(c rune) bool { return c == '&' },
			func(c rune) bool { return c == '&' || c == ';' },
		} {
			for _, pair := range strings.FieldsFunc(query, split) {
				name, value, _ := strings.Cut(pair, "=")
				if name, err := url.QueryUnescape(name); err != nil || name != "agent_id" {
					continue
				}
				if v, err := url.QueryUnescape(value); err != nil || !known || v != counted {
					t.Errorf("%q: counted by %q, %v; another reader finds %q, %v", query, counted, known, v, err)
				}
			}
		}
	})
}

func TestAPlainQueryIsParsedWithoutAllocating(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		identity.AgentIsAmbiguous("x=1&y=2&agent_id=demo&q=100")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
