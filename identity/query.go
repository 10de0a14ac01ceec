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

// appendParameter appends the value of a query parameter. A query that readers read in different
// ways counts as one without it, as does one with an empty value.
func (c *Caller) appendParameter(dst []byte, name string) ([]byte, bool) {
	raw := c.request.RawQuery()
	if raw == "" || QueryIsAmbiguous(raw, name) {
		return dst, false
	}
	v, _ := QueryValue(raw, name)
	return append(dst, v...), v != ""
}

// AgentIsAmbiguous is QueryIsAmbiguous for the parameter that names an agent.
func AgentIsAmbiguous(raw string) bool { return QueryIsAmbiguous(raw, agentParameter) }

// QueryIsAmbiguous reports whether readers would differ about the value of a parameter in a raw
// query (D10): it has two different values, a value with an invalid escape, a semicolon beside it,
// which some readers take as a separator, more parameters before it than some read, or a name that
// only some read as name (in other letters, with "." for "_", with brackets). It is false for a
// query without the parameter. name has letters, digits, and ".", "_", "~" or "-". It allocates
// only for a query that has escapes, or such a name.
func QueryIsAmbiguous(raw, name string) bool {
	if !mayName(raw, name) {
		return false
	}
	value, found, n := "", false, 0
	for pair := range strings.SplitSeq(raw, "&") {
		n++
		if strings.IndexByte(pair, ';') >= 0 {
			if names(pair, name) {
				return true
			}
			continue
		}
		before, escaped, _ := strings.Cut(pair, "=")
		switch readsAs(before, name) {
		case otherName:
			continue
		case nameToSome:
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

// mayName reports whether a query has an escape, or the beginning of name in any case, up to what
// some readers spell differently.
func mayName(raw, name string) bool {
	begin := name
	if i := strings.IndexAny(name, "._"); i >= 0 {
		begin = name[:i]
	}
	if begin == "" {
		return true
	}
	first := lower(begin[0])
	for i := range len(raw) {
		switch lower(raw[i]) {
		case '%':
			return true
		case first:
			if len(raw)-i >= len(begin) && strings.EqualFold(raw[i:i+len(begin)], begin) {
				return true
			}
		}
	}
	return false
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// How servers read the name of a parameter.
const (
	otherName  = iota
	nameToSome // some read it as the name that is looked for
	nameToAll  // all read it so
)

// readsAs returns how servers read a parameter whose raw name in the query is given, if they look
// for name. ASP.NET ignores the case of letters. PHP ends a name at a NUL, drops blanks before it,
// and reads ".", blank and "[" as "_". PHP, Rack and qs read "name[]" as a list. qs reads "[name]"
// as the name itself.
func readsAs(raw, name string) int {
	if raw == name {
		return nameToAll
	}
	if len(raw) < len(name) {
		return otherName
	}
	if strings.ContainsAny(raw, "%+") {
		decoded, err := url.QueryUnescape(raw)
		if err != nil {
			return otherName // the "%" is part of the name, or the parameter is ignored
		}
		if raw = decoded; raw == name {
			return nameToAll
		}
	}
	raw, _, _ = strings.Cut(raw, "\x00")
	raw = strings.TrimLeft(strings.TrimSpace(raw), "[") // qs drops brackets around a whole name
	if len(raw) < len(name) {
		return otherName
	}
	raw, rest := raw[:len(name)], raw[len(name):]
	if rest != "" && rest[0] != '[' && rest[0] != ']' {
		return otherName
	}
	for i := range len(raw) {
		if loose(raw[i]) != loose(name[i]) {
			return otherName
		}
	}
	return nameToSome
}

// loose returns the one spelling of a name's character for the servers that do not distinguish
// several.
func loose(c byte) byte {
	switch c {
	case '.', ' ', '[':
		return '_'
	}
	return lower(c)
}
