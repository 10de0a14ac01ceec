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

// finders holds how a request answers each of the built-in sources.
var finders = map[string]finder{
	IP:       (*Caller).appendAddr,
	Agent:    (*Caller).appendAgent,
	Session:  (*Caller).appendSession,
	Token:    (*Caller).appendToken,
	Header:   (*Caller).appendField,
	Path:     (*Caller).appendNothing,
	Cookie:   (*Caller).appendCookie,
	Query:    (*Caller).appendParameter,
	Host:     (*Caller).appendHost,
	Claim:    (*Caller).appendClaim,
	Everyone: func(_ *Caller, dst []byte, _ string) ([]byte, bool) { return dst, true },
}

// A knownSource is a source that callers of a Resolver can be asked for.
type knownSource struct {
	weir.Source
	find finder
}

// knownSources returns the built-in sources and those of an embedding service.
func knownSources(extra []Source) ([]knownSource, error) {
	var all []knownSource
	for _, s := range Sources() {
		all = append(all, knownSource{s, finders[s.Name]})
	}
	for _, s := range extra {
		if s.Find == nil {
			return nil, fmt.Errorf("key source %q has no function", s.Name)
		}
		if !isSourceName(s.Name) {
			return nil, fmt.Errorf("key source %q: expected lower-case letters, digits and dashes, a letter first", s.Name)
		}
		for _, known := range all {
			if known.Name == s.Name {
				return nil, fmt.Errorf("key source %q already exists: choose another name", s.Name)
			}
		}
		all = append(all, knownSource{s.Source, func(c *Caller, dst []byte, field string) ([]byte, bool) {
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
	all := make([]weir.Source, len(r.sources))
	for i, s := range r.sources {
		all[i] = s.Source
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
	for i := range c.resolver.sources {
		if s := &c.resolver.sources[i]; s.Name == name && (s.Field != "") == (field != "") {
			return s.find(c, dst, field)
		}
	}
	return dst, false
}

// appendNothing is for sources that a caller has no value of, because the limiter's route has it.
func (c *Caller) appendNothing(dst []byte, _ string) ([]byte, bool) { return dst, false }

func (c *Caller) appendAgent(dst []byte, _ string) ([]byte, bool) {
	return append(dst, c.Agent()...), true
}

func (c *Caller) appendSession(dst []byte, _ string) ([]byte, bool) {
	s, _ := c.sessionClaims()
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
