package identity

import (
	"net/url"
	"strings"
)

// agentParameter is the query parameter that names an agent (D13).
const agentParameter = "agent_id"

// maxParameters is how many parameters of a query PHP and Node's qs read at most. Only some readers
// see those that follow.
const maxParameters = 1000

// QueryValue returns the first value of a parameter of a raw query, as implementations of Request
// return it. Like net/url, it ignores parameters with a semicolon or an invalid escape.
func QueryValue(raw, name string) (value string, ok bool) {
	if !strings.Contains(raw, name) && !strings.Contains(raw, "%") {
		return "", false
	}
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" || strings.IndexByte(pair, ';') >= 0 {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		key, err := url.QueryUnescape(key)
		if err != nil || key != name {
			continue
		}
		if value, err = url.QueryUnescape(value); err == nil {
			return value, true
		}
	}
	return "", false
}

// AgentIsAmbiguous reports whether readers would differ about the agent that a raw query names
// (D10): it has two different values of agent_id, a value with an invalid escape, a semicolon
// beside it, which some readers take as a separator, more parameters before it than some read, or a
// name that only some read as agent_id (in other letters, with "." for "_", with brackets). It is
// false for a query without an agent. It allocates only for a query that has escapes, or such a
// name.
func AgentIsAmbiguous(raw string) bool {
	if !mayNameAgent(raw) {
		return false
	}
	value, found, n := "", false, 0
	for pair := range strings.SplitSeq(raw, "&") {
		n++
		if strings.IndexByte(pair, ';') >= 0 {
			for part := range strings.SplitSeq(pair, ";") {
				if name, _, _ := strings.Cut(part, "="); readsAsAgent(name) != noAgent {
					return true
				}
			}
			continue
		}
		name, escaped, _ := strings.Cut(pair, "=")
		switch readsAsAgent(name) {
		case noAgent:
			continue
		case someAgent:
			return true
		}
		v, err := url.QueryUnescape(escaped)
		if err != nil || found && v != value || n > maxParameters {
			return true
		}
		value, found = v, true
	}
	return false
}

// mayNameAgent reports whether a query has an escape, or "agent" in any case.
func mayNameAgent(raw string) bool {
	const begin = "agent"
	for i := range len(raw) {
		switch raw[i] {
		case '%':
			return true
		case 'a', 'A':
			if len(raw)-i >= len(begin) && strings.EqualFold(raw[i:i+len(begin)], begin) {
				return true
			}
		}
	}
	return false
}

// How servers read the name of a parameter.
const (
	noAgent   = iota
	someAgent // some read it as agent_id
	anAgent   // all read it as agent_id
)

// readsAsAgent returns how servers read the name of a parameter, given its raw text in the query.
// ASP.NET ignores the case of letters. PHP ends a name at a NUL, drops blanks before it, and reads
// ".", blank and "[" as "_". PHP, Rack and qs read "agent_id[]" as a list. qs reads "[agent_id]" as
// the name itself.
func readsAsAgent(name string) int {
	if name == agentParameter {
		return anAgent
	}
	if len(name) < len(agentParameter) {
		return noAgent
	}
	if strings.ContainsAny(name, "%+") {
		decoded, err := url.QueryUnescape(name)
		if err != nil {
			return noAgent // the "%" is part of the name, or the parameter is ignored
		}
		if name = decoded; name == agentParameter {
			return anAgent
		}
	}
	name, _, _ = strings.Cut(name, "\x00")
	name = strings.TrimLeft(strings.TrimSpace(name), "[") // qs drops brackets around a whole name
	if len(name) < len(agentParameter) {
		return noAgent
	}
	name, rest := name[:len(agentParameter)], name[len(agentParameter):]
	if rest != "" && rest[0] != '[' && rest[0] != ']' {
		return noAgent
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case c == '.', c == ' ', c == '[':
			c = '_'
		}
		if c != agentParameter[i] {
			return noAgent
		}
	}
	return someAgent
}
