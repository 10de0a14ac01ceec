package identity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
)

// Sources returns the key sources that are built in.
func Sources() []weir.Source { return weir.Sources() }

// A Source is a key source that an embedding service adds.
type Source struct {
	// Source describes it. Its Kind decides which warnings a policy gets: a value that the caller
	// can choose is weir.Chosen. An embedding service verifies what it calls weir.Credential.
	weir.Source

	// Find returns the value that a request has; ok is false if it has none. field is the name of
	// the HTTP field that the policy names, if Source.Field is set, in canonical form. It is
	// called concurrently, and may be called more than once for a request.
	Find func(r Request, field string) (value string, ok bool)
}

// A finder appends the value of a source to dst; ok is false if the caller has none.
type finder func(c *Caller, dst []byte, field string) (value []byte, ok bool)

// builtIn returns how a request answers a built-in source, and whether the name of what is read
// follows that of the source. find is nil for any other name. It is a switch because every request
// asks, and a look-up in a map or a list takes longer.
func builtIn(name string) (find finder, named bool) {
	switch name {
	case IP:
		return (*Caller).appendAddr, false
	case Agent:
		return (*Caller).appendAgent, false
	case Session:
		return (*Caller).appendSession, false
	case Token:
		return (*Caller).appendToken, false
	case Header:
		return (*Caller).appendField, true
	case Path:
		return (*Caller).appendNothing, true
	case Cookie:
		return (*Caller).appendCookie, true
	case Query:
		return (*Caller).appendParameter, true
	case Host:
		return (*Caller).appendHost, false
	case Claim:
		return (*Caller).appendClaim, true
	case Cert:
		return (*Caller).appendCertificate, false
	case Everyone:
		return (*Caller).appendEveryone, false
	}
	return nil, false
}

// An extraSource is a source of an embedding service.
type extraSource struct {
	weir.Source
	find finder
}

// extraSources returns the sources of an embedding service.
func extraSources(extra []Source) ([]extraSource, error) {
	var all []extraSource
	taken := func(name string) bool {
		known := func(s extraSource) bool { return s.Name == name }
		find, _ := builtIn(name)
		return find != nil || slices.ContainsFunc(all, known)
	}
	for _, s := range extra {
		if s.Find == nil {
			return nil, fmt.Errorf("key source %q has no function", s.Name)
		}
		if !isSourceName(s.Name) {
			return nil, fmt.Errorf("key source %q: expected lower-case letters, digits and dashes, a letter first", s.Name)
		}
		if taken(s.Name) {
			return nil, fmt.Errorf("key source %q already exists: choose another name", s.Name)
		}
		all = append(all, extraSource{s.Source, func(c *Caller, dst []byte, field string) ([]byte, bool) {
			v, ok := s.Find(c.request, field)
			if ok {
				dst = append(dst, v...)
			}
			return dst, ok
		}})
	}
	return all, nil
}

// isSourceName reports whether a policy can name a source so. A name with a colon would be that of
// one field of another source, such as header:X-Api-Key, and would replace its value.
func isSourceName(name string) bool {
	key, err := weir.ParseKey(name)
	return err == nil && len(key) == 1 && slices.Equal(key[0], weir.Part{name}) && !strings.Contains(name, ":")
}

// Sources returns all key sources that callers of this Resolver can be asked for: the built-in
// ones, then those of Options.Extra.
func (r *Resolver) Sources() []weir.Source {
	all := Sources()
	for i := range r.extra {
		all = append(all, r.extra[i].Source)
	}
	return all
}

// AppendKey appends the value of a key source to dst; ok is false if this caller has none. It
// allocates nothing for an address, nor for a credential that has been seen before.
func (c *Caller) AppendKey(dst []byte, source string) (value []byte, ok bool) {
	name, field := source, ""
	if i := strings.IndexByte(source, ':'); i >= 0 {
		if name, field = source[:i], source[i+1:]; field == "" {
			return dst, false
		}
	}
	find, named := builtIn(name)
	if find == nil {
		find, named = c.resolver.extraSource(name)
	}
	if find == nil || named != (field != "") {
		return dst, false
	}
	return find(c, dst, field)
}

// extraSource is builtIn for the sources of the embedding service.
func (r *Resolver) extraSource(name string) (find finder, named bool) {
	for i := range r.extra {
		if s := &r.extra[i]; s.Name == name {
			return s.find, s.Field != ""
		}
	}
	return nil, false
}

// appendEveryone appends nothing, which all callers have in common.
func (c *Caller) appendEveryone(dst []byte, _ string) ([]byte, bool) { return dst, true }

// appendNothing is for sources that a caller has no value of, because the limiter's route has it.
func (c *Caller) appendNothing(dst []byte, _ string) ([]byte, bool) { return dst, false }

func (c *Caller) appendAgent(dst []byte, _ string) ([]byte, bool) {
	return append(dst, c.Agent()...), true
}

func (c *Caller) appendSession(dst []byte, _ string) ([]byte, bool) {
	s, _ := c.verifiedSession()
	if s == nil {
		return dst, false
	}
	return append(dst, s.Key...), true
}

func (c *Caller) appendToken(dst []byte, _ string) ([]byte, bool) {
	t, _ := c.tokenClaims()
	if t == nil {
		return dst, false
	}
	return append(dst, t.ID...), true
}

// appendField appends the value of an HTTP field, without the blanks around it. A request that has
// the field more than once, or with an empty value, counts as one without it: a backend could read
// another value than the one that was counted.
func (c *Caller) appendField(dst []byte, field string) ([]byte, bool) {
	v := oneLine(c.request, field)
	return append(dst, v...), v != ""
}
