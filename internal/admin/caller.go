package admin

import (
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// A callerQuery names a caller in one of three ways: by any combination of key sources; by a denial
// id; or by a limiter and the hash of one of its top callers.
type callerQuery struct {
	IP      string `json:"ip"`
	Agent   string `json:"agent"`
	Session string `json:"session"` // its sid, or if it has none, its jti
	Issuer  string `json:"issuer"`  // its iss, if this server does not require a certain one
	Token   string `json:"token"`   // the public id
	Host    string `json:"host"`
	Cert    string `json:"cert"` // the name in its certificate, see identity.CertificateName
	// The values of HTTP fields, parameters of routes, cookies, query parameters and claims, each
	// as NAME=VALUE.
	Header  []string `json:"header"`
	Path    []string `json:"path"`
	Cookie  []string `json:"cookie"`
	Query   []string `json:"query"`
	Claim   []string `json:"claim"`
	Denial  string   `json:"denial"`
	Hash    string   `json:"hash"`
	Limiter string   `json:"limiter"`
}

// A named is a caller that an operator has named.
type named struct {
	sources []string    // the key sources that name it
	callers []weir.Keys // the possible callers, which differ in the key of their session
	limiter string      // the only limiter to look at; empty: any
	// partial means that the caller may have values of sources that do not name it.
	partial bool
}

// A refusal is an error answer to an operator.
type refusal struct {
	status        int
	code, message string
}

func (r *refusal) Error() string { return r.message }

func (r *refusal) write(w http.ResponseWriter) { refuse(w, r.status, r.code, r.message) }

// maxCallerQuery is the max length of a caller's name, in bytes.
const maxCallerQuery = 16 << 10

const howToName = "name one by ip, agent, session, token, host, cert, header, path, cookie, query or claim, by denial, or by limiter and hash"

// find returns the caller that c names.
func (s *Server) find(c callerQuery) (*named, *refusal) {
	direct := c.IP+c.Agent+c.Session+c.Token+c.Host+c.Cert != ""
	for _, list := range c.lists() {
		direct = direct || len(*list) > 0
	}
	ways := 0
	for _, given := range []bool{direct, c.Denial != "", c.Hash != ""} {
		if given {
			ways++
		}
	}
	switch {
	case ways == 0:
		return nil, &refusal{http.StatusBadRequest, "no_caller", "No caller is named: " + howToName + "."}
	case ways > 1:
		return nil, &refusal{http.StatusBadRequest, "ambiguous_caller", "The caller is named in several ways at once: " + howToName + "."}
	case c.size() > maxCallerQuery:
		return nil, &refusal{http.StatusBadRequest, "invalid_caller", "The caller's name is too long."}
	case c.Denial != "":
		return s.byDenial(c)
	case c.Hash != "":
		return s.byHash(c)
	}
	return s.byKeys(c)
}

// size returns the length of what names the caller, in bytes.
func (c *callerQuery) size() int {
	n := len(c.Agent) + len(c.Session) + len(c.Issuer) + len(c.Denial) + len(c.Host) + len(c.Cert)
	for _, list := range c.lists() {
		for _, text := range *list {
			n += len(text)
		}
	}
	return n
}

func (s *Server) byDenial(c callerQuery) (*named, *refusal) {
	if s.options.Denials == nil {
		return nil, &refusal{http.StatusNotFound, "no_denials", "This server does not add ids to refusals."}
	}
	f, err := s.options.Denials(c.Denial)
	if err != nil {
		return nil, &refusal{http.StatusUnprocessableEntity, "invalid_denial", err.Error()}
	}
	if f.Denied {
		return nil, &refusal{http.StatusUnprocessableEntity, "denied_caller", "Limiter " + f.Limiter + " denied that request, so its id names no budget; change the limiter's deny, or " + howToName + "."}
	}
	if f.Partial {
		return nil, &refusal{http.StatusUnprocessableEntity, "partial_denial", "The id does not contain all keys of its caller; " + howToName + "."}
	}
	if c.Limiter != "" && c.Limiter != f.Limiter {
		return nil, &refusal{http.StatusUnprocessableEntity, "other_limiter", "That refusal was by limiter " + f.Limiter + "; its id has no data on other limiters."}
	}
	return &named{sources: sourcesOf(f.Keys()), callers: []weir.Keys{f.Keys()}, limiter: f.Limiter}, nil
}

func (s *Server) byHash(c callerQuery) (*named, *refusal) {
	if c.Limiter == "" {
		return nil, &refusal{http.StatusBadRequest, "no_limiter", "A hash names a caller only together with a limiter."}
	}
	if s.options.Recorder == nil {
		return nil, &refusal{http.StatusNotFound, "unknown_caller", "This server does not record callers."}
	}
	keys, ok := s.options.Recorder.Caller(c.Limiter, c.Hash)
	if !ok {
		return nil, &refusal{http.StatusNotFound, "unknown_caller", "No top caller of that limiter has that hash now, or its keys were not saved."}
	}
	return &named{sources: sourcesOf(keys), callers: []weir.Keys{keys}, limiter: c.Limiter}, nil
}

// sourcesOf returns the key sources for which keys has a value.
func sourcesOf(keys weir.SavedKeys) (sources []string) {
	for _, k := range keys {
		if !k.IsPlan() && !k.IsDeny() && weir.SourceOf(k.Source).Kind != weir.Common {
			sources = append(sources, k.Source)
		}
	}
	return sources
}

func (s *Server) byKeys(c callerQuery) (*named, *refusal) {
	invalid := func(err error) *refusal { return &refusal{http.StatusBadRequest, "invalid_caller", err.Error()} }
	one := partialCaller{values: make(map[string]string), tokens: s.options.APITokens}
	n := &named{partial: true}
	if c.IP != "" {
		addr, err := netip.ParseAddr(c.IP)
		if err != nil || addr.Zone() != "" {
			return nil, invalid(errors.New("ip must be an address such as 192.0.2.7 or 2001:db8::1"))
		}
		one.addr, one.prefix = addr.Unmap(), s.options.IPv6Prefix
		n.sources = append(n.sources, "ip")
	}
	if c.Agent != "" {
		n.add(&one, "agent", c.Agent)
	}
	if c.Token != "" {
		if _, err := weir.ParseWho("token " + c.Token); err != nil {
			return nil, invalid(err)
		}
		n.add(&one, "token", c.Token)
	}
	if c.Host != "" {
		host, err := hostOf(c.Host)
		if err != nil {
			return nil, invalid(err)
		}
		n.add(&one, identity.Host, host)
	}
	if c.Cert != "" {
		name, err := identity.CertificateName(c.Cert)
		if err != nil {
			return nil, invalid(err)
		}
		n.add(&one, identity.Cert, name)
	}
	claims, err := n.addLists(&one, &c)
	if err != nil {
		return nil, invalid(err)
	}
	if c.Session == "" && len(claims) == 0 {
		n.callers = []weir.Keys{&one}
		return n, nil
	}
	return n, s.addSessions(n, &one, &c, claims)
}

// addSessions adds the callers that one may be with the session or the claims that c names: their
// keys begin with the issuer, or with the key that verifies them, of which there may be several.
func (s *Server) addSessions(n *named, one *partialCaller, c *callerQuery, claims map[string]string) *refusal {
	if s.options.Sessions == nil {
		return &refusal{http.StatusUnprocessableEntity, "no_sessions", "This server does not verify sessions, so it counts no caller by session or claim."}
	}
	var owners []map[string]string // the values for each possible caller
	keep := func(source string, keys []string) {
		if n.sources = append(n.sources, source); owners == nil {
			owners = make([]map[string]string, len(keys))
			for i := range owners {
				owners[i] = maps.Clone(one.values)
			}
		}
		for i := range owners {
			owners[i][source] = keys[i*len(keys)/len(owners)]
		}
	}
	if c.Session != "" {
		keys, err := s.options.Sessions.KeysOf(c.Issuer, c.Session)
		if err != nil {
			return &refusal{http.StatusUnprocessableEntity, "unknown_session", err.Error()}
		}
		keep(identity.Session, keys)
	}
	for _, source := range slices.Sorted(maps.Keys(claims)) {
		keys, err := s.options.Sessions.ClaimKeysOf(c.Issuer, claims[source])
		if err != nil {
			return &refusal{http.StatusUnprocessableEntity, "unknown_session", err.Error()}
		}
		keep(source, keys)
	}
	for _, values := range owners {
		each := *one
		each.values = values
		n.callers = append(n.callers, &each)
	}
	return nil
}

// add gives the caller the value of a key source.
func (n *named) add(to *partialCaller, source, value string) {
	to.values[source] = value
	n.sources = append(n.sources, source)
}

// kinds returns the sources joined by "+", as in a policy.
func (n *named) kinds() string { return strings.Join(n.sources, "+") }

// lacks returns the key sources that are missing to know the caller's window. It is empty if the
// window is known.
func (n *named) lacks(w *weir.Window) string {
	var all []string
	for _, part := range w.Key {
		if what := n.lacksPart(part); what != "" && !slices.Contains(all, what) {
			all = append(all, what)
		}
	}
	return strings.Join(all, ", ")
}

// lacksPart returns the key sources that are missing to know the value of a part of a key. A
// request without a value of an optional source counts by the next alternative, and in the end by
// its address. If another source was not named, its value is not known. Nor is that of the host:
// HTTP/1.1 and HTTP/2 have no request without one.
func (n *named) lacksPart(part weir.Part) string {
	for _, source := range part {
		if _, ok := n.callers[0].AppendKey(nil, source); ok {
			return ""
		}
		if !weir.SourceOf(source).Optional || n.partial && source == identity.Host {
			return source
		}
	}
	if _, ok := n.callers[0].AppendKey(nil, "ip"); ok {
		return ""
	}
	return strings.Join(append(slices.Clone(part), "ip"), " or ")
}

// without returns the optional key sources that the caller's requests are taken not to have, since
// they do not name it: a request that has one is counted elsewhere.
func (n *named) without(w *weir.Window) (sources []string) {
	if !n.partial {
		return nil
	}
	for _, part := range w.Key {
		for _, source := range part {
			if _, ok := n.callers[0].AppendKey(nil, source); ok {
				break
			}
			if !slices.Contains(sources, source) {
				sources = append(sources, source)
			}
		}
	}
	return sources
}

// hasAddr reports whether the caller's address is known exactly.
func (n *named) hasAddr() bool {
	who, ok := n.callers[0].(weir.Addresser)
	return ok && who.Addr().IsValid()
}

// uses reports whether a window counts by any of the sources that name the caller.
func (n *named) uses(w *weir.Window) bool {
	if n.lacks(w) != "" {
		return false
	}
	for _, part := range w.Key {
		if source, _ := weir.CountedBy(nil, part, n.callers[0]); slices.Contains(n.sources, source) {
			return true
		}
	}
	return false
}

// A partialCaller is a caller of which an operator knows some keys.
type partialCaller struct {
	addr   netip.Addr
	prefix int               // bits of an IPv6 address that count
	values map[string]string // of the other key sources; of a session its key
	tokens identity.Tokens   // which know the plans of tokens; nil: none
}

// AppendKey implements weir.Keys as identity does.
func (c *partialCaller) AppendKey(dst []byte, source string) (value []byte, ok bool) {
	switch weir.SourceOf(source).Kind {
	case weir.Common:
		return dst, true
	case weir.Address:
		if !c.addr.IsValid() {
			return dst, false
		}
		addr := c.addr
		if addr.Is6() {
			if p, err := addr.Prefix(c.prefix); err == nil {
				addr = p.Addr()
			}
		}
		return append(dst, addr.AsSlice()...), true
	}
	text := c.values[source]
	return append(dst, text...), text != ""
}

// Addr implements weir.Addresser.
func (c *partialCaller) Addr() netip.Addr { return c.addr }
