package replay

import (
	"hash/maphash"
	"net/http"
	"slices"
	"strings"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/target"
)

// paths cache the limiter choice for a path, since paths repeat in logs: a lookup takes a sixth of
// the time of a choice. Only plain paths are cached, so that a hit needs no check.
type paths struct {
	slots [1 << 10]remembered
	last  remembered // for paths that are not cached
}

// A remembered is a path, and each policy's choice for it.
type remembered struct {
	method, host, path []byte
	choices            [2]target.Choice
	agentless          [2]target.Choice // of the lanes' agentless deciders
}

// maxRemembered is the length of the longest path that is cached.
const maxRemembered = 256

// choose returns each policy's choice for a request, and its query; ok is false if an HTTP server
// would not accept the request. The result is valid until the next call. named means that the agent
// is known without the query. host is empty if no route names one.
func (r *Replay) choose(method, host, raw string, named bool) (chosen *remembered, query string, ok bool) {
	path := raw
	if i := strings.IndexByte(raw, '?'); i >= 0 {
		path, query = raw[:i], raw[i+1:]
	}
	ambiguous := query != "" && identity.AgentIsAmbiguous(query) && !named
	if ambiguous || r.isOdd(query) || !target.IsPlainQuery(query) || !target.IsMethod(method) {
		return r.chooseOdd(method, host, raw, ambiguous)
	}
	if len(host)+len(path) > maxRemembered {
		if !r.isPlain(path) {
			return r.chooseOdd(method, host, raw, false)
		}
		r.chooseInto(&r.paths.last, &target.Request{Method: method, Host: host, Path: path})
		return &r.paths.last, query, true
	}
	hash := maphash.String(r.seed, path) + uint64(method[0]) + uint64(len(method))
	if host != "" {
		hash += maphash.String(r.seed, host)
	}
	slot := &r.paths.slots[hash%uint64(len(r.paths.slots))]
	if text(slot.path) == path && text(slot.method) == method && text(slot.host) == host {
		return slot, query, true
	}
	if !r.isPlain(path) {
		return r.chooseOdd(method, host, raw, false)
	}
	slot.method, slot.host, slot.path = append(slot.method[:0], method...), append(slot.host[:0], host...), append(slot.path[:0], path...)
	// The choices refer to the path, so it must live as long as they do.
	r.chooseInto(slot, &target.Request{Method: method, Host: host, Path: text(slot.path)})
	return slot, query, true
}

// isPlain reports whether a path is counted as it is logged.
func (r *Replay) isPlain(path string) bool {
	return target.IsPlain(path) && (r.options.Paths != target.AsSent || target.IsPlainAsSent(path))
}

// isOdd reports whether a query can be read in more than one way for a parameter that a policy
// counts by.
func (r *Replay) isOdd(query string) bool {
	return query != "" && slices.ContainsFunc(r.sources.parameters, func(name string) bool { return identity.QueryIsAmbiguous(query, name) })
}

// chooseOdd is choose for a request that is not plain.
func (r *Replay) chooseOdd(method, host, raw string, ambiguous bool) (chosen *remembered, query string, ok bool) {
	if !isToken(method) {
		return nil, "", false
	}
	u, err := target.Parse(method, raw)
	if err != nil {
		return nil, "", false
	}
	asked := target.Request{Method: method, Host: host, Ambiguous: ambiguous, Query: u.RawQuery}
	path, _, _ := strings.Cut(raw, "?")
	switch {
	case r.options.Paths != target.AsSent || path == "" || path[0] != '/':
		asked.Read(u)
	case target.IsPlainQuery(u.RawQuery):
		_ = asked.ReadAsSent(path) // Raw is set then
	default:
		asked.Raw = path
	}
	r.chooseInto(&r.paths.last, &asked)
	return &r.paths.last, u.RawQuery, true
}

func (r *Replay) chooseInto(to *remembered, asked *target.Request) {
	if asked.Method == http.MethodOptions {
		asked.Purpose = target.CORSPreflight
	}
	for i, l := range r.lanes {
		target.Choose(l.decider, asked, &to.choices[i])
		if l.agentless != nil {
			target.Choose(l.agentless, asked, &to.agentless[i])
		}
	}
}

// isToken reports whether a method is a token (RFC 9110, section 5.6.2).
func isToken(method string) bool {
	for _, c := range []byte(method) {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return method != ""
}
