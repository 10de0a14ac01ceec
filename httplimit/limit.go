package httplimit

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/notice"
	"github.com/weirlimit/weir/memstore"
)

// Limit returns middleware that limits all requests that it gets. A window is spelled as in a
// policy (weir.ParseWindow): "100 per minute by ip". A request is charged to all windows or to
// none. If windows are wrong, Limit panics, as regexp.MustCompile does: it is for windows that are
// part of the program. LimitErr returns the error instead.
//
// The counts are in this process's memory, in a store of their own that needs no closing: they are
// at most memstore.DefaultMemory bytes, and a flood of callers cannot evict a count. Each call of
// Limit counts for itself. The handlers that one middleware wraps share its counts.
//
// Responses have the fields X-RateLimit-Limit, -Remaining and -Reset, and refusals Retry-After. The
// first three keep this spelling in the map of a ResponseWriter, where Header.Get looks for another
// one (X-Ratelimit-Limit): with httptest.ResponseRecorder, read w.Header()["X-RateLimit-Limit"].
//
// The address of a caller is that of the connection, since no proxy is trusted. So behind a proxy
// all callers share one budget, and the log has a warning: name the proxy in Setup.Caller. IPv6
// addresses are counted by their /64.
func Limit(windows ...string) func(http.Handler) http.Handler { return Setup{}.Limit(windows...) }

// LimitErr is Limit for windows that are not part of the program, such as those of a configuration:
// it returns an error with all problems, one a line, and does not panic.
func LimitErr(windows ...string) (func(http.Handler) http.Handler, error) {
	return Setup{}.LimitErr(windows...)
}

// A Setup is Limit with other settings. The zero value has those of Limit.
type Setup struct {
	// Limiter is the limiter without its Windows, which are given to Limit: its cost, its limit in
	// flight, the credential that it requires. If Name is empty, it is "limit". If Routes is empty,
	// the limiter covers all requests; otherwise other requests are not limited. A window that
	// counts by path:NAME needs Routes that have the parameter {NAME}; KeyFunc reads those of a
	// router.
	Limiter weir.Limiter

	// Caller is how callers are told apart: trusted proxies, keys that verify credentials, key
	// sources of your own (KeyFunc). A credential that the limiter requires or counts by has to be
	// verified by it.
	Caller identity.Options

	// Store counts the requests. If nil, it is a new one in memory. The caller of Limit closes a
	// Store that it sets, when no handler uses it any more, and gives a store outside of this
	// process a deadline (package failover). Setups with the same Store and Limiter.Name share
	// counts, so Name is required with a Store.
	Store weir.Store

	// Options are those of the Middleware. Options.Identity must be nil: it is made of Caller.
	Options Options

	// Log has a warning for each proxy, up to eight, that requests come through and that is not
	// trusted, so that its clients share a budget. If nil, it is slog.Default().
	Log *slog.Logger
}

// Limit is the function of this name, with the settings of s.
func (s Setup) Limit(windows ...string) func(http.Handler) http.Handler {
	wrap, err := s.LimitErr(windows...)
	if err != nil {
		panic(fmt.Sprintf("httplimit: Limit(%s): %v", quoted(windows), err))
	}
	return wrap
}

// LimitErr is the function of this name, with the settings of s.
func (s Setup) LimitErr(windows ...string) (func(http.Handler) http.Handler, error) {
	m, err := s.middleware(windows)
	if err != nil {
		return nil, err
	}
	wrap := m.Wrap
	if len(s.Limiter.Routes) == 0 && s.Limiter.Mode == weir.Enforce {
		wrap = m.wrapAll(s.name())
	}
	log := s.Log
	if log == nil {
		log = slog.Default()
	}
	return (&proxyAlarm{who: m.identity, field: s.Caller.ClientIPHeader, log: log}).around(wrap), nil
}

func (s Setup) name() string {
	if s.Limiter.Name == "" {
		return "limit"
	}
	return s.Limiter.Name
}

func (s Setup) middleware(windows []string) (*Middleware, error) {
	l, problems := s.limiter(windows)
	who, err := identity.New(s.Caller)
	if err != nil {
		problems = append(problems, err)
	} else {
		problems = append(problems, unverified(&l, who)...)
	}
	problems = append(problems, unrouted(&l)...)
	if len(problems) > 0 {
		problems = append(problems, inSetup(weir.Policy{Limiters: []weir.Limiter{l}}.Problems(sourcesOf(who)), len(l.Windows) < len(windows))...)
		return nil, joined(problems)
	}
	store := s.Store
	if store == nil {
		if store, err = memstore.New(memstore.Options{Log: s.Log}); err != nil {
			return nil, fmt.Errorf("limit: %w", err)
		}
	}
	d, err := weir.New(weir.Policy{Limiters: []weir.Limiter{l}}, store, weir.Options{Sources: who.Sources()})
	if bad := new(weir.PolicyError); errors.As(err, &bad) {
		return nil, joined(inSetup(bad.Problems, false))
	} else if err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	s.Options.Identity = who
	m, err := New(d, s.Options)
	if err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	return m, nil
}

// limiter returns the limiter with those windows that can be parsed, and what is wrong with s and
// with the others.
func (s Setup) limiter(windows []string) (l weir.Limiter, problems []error) {
	if s.Options.Identity != nil {
		problems = append(problems, errors.New("Setup.Options.Identity is set: it is made of Setup.Caller, so leave it nil"))
	}
	if s.Store != nil && s.Limiter.Name == "" {
		problems = append(problems, errors.New("Setup.Store is set without Setup.Limiter.Name: limits of one name share counts in a store, so name each"))
	}
	if len(s.Limiter.Windows) > 0 {
		problems = append(problems, errors.New("Setup.Limiter.Windows is set: the windows are the arguments of Limit"))
	}
	l = s.Limiter
	l.Name, l.Windows = s.name(), nil
	for _, text := range windows {
		w, err := weir.ParseWindow(text)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		l.Windows = append(l.Windows, w)
	}
	if l.Mode == weir.Shadow && len(l.Routes) == 0 {
		// a limiter in Shadow mode is found by its routes alone
		l.Routes = []weir.Route{{Path: "/", Prefix: true}}
	}
	return l, problems
}

// sourcesOf returns the key sources by which windows can count; nil if who is: any name is
// accepted then.
func sourcesOf(who *identity.Resolver) []weir.Source {
	if who == nil {
		return nil
	}
	return who.Sources()
}

// joined returns the problems as one error, one a line; nil if there are none.
func joined(problems []error) error {
	for i, err := range problems {
		problems[i] = fmt.Errorf("limit: %w", err)
	}
	return errors.Join(problems...)
}

// inGo has the words of a policy file in problems, and those of a Setup.
var inGo = strings.NewReplacer(
	`add "chosen: yes" to the limiter`, "set Setup.Limiter.Chosen",
	"; or in_flight, such as: 10 by ip", "; or set Setup.Limiter.InFlight",
	"every route of the limiter needs it", "every route of Setup.Limiter.Routes needs it, or "+byKeyFunc,
)

// inSetup returns the problems of the policy of a Setup in the words of its fields. incomplete
// means that windows are missing, and that problems which these could solve are left out.
func inSetup(all []weir.Problem, incomplete bool) (problems []error) {
	for _, p := range all {
		switch {
		case incomplete && !slices.Contains([]string{"name", "routes", "requires"}, p.Field) && (p.Field != "windows" || p.Index < 0):
		case p.Field == "windows" || p.Field == "":
			problems = append(problems, errors.New(inGo.Replace(p.Message)))
		default:
			problems = append(problems, fmt.Errorf("Setup.Limiter.%s: %s", goName(p.Field), inGo.Replace(p.Message)))
		}
	}
	return problems
}

// goName returns the field of a weir.Limiter that a policy file spells with underscores.
func goName(field string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(field, "_") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// unverified reports the credentials that l requires or counts by and that who cannot verify:
// nobody would be rejected, and everybody be counted by address.
func unverified(l *weir.Limiter, who *identity.Resolver) (problems []error) {
	fields := map[string]string{identity.Session: "Sessions", identity.Token: "Tokens", identity.Cert: "Certificates"}
	if field, ok := fields[l.Requires]; ok && !who.Verifies(l.Requires) {
		problems = append(problems, fmt.Errorf("requires %s: nothing verifies it: set Setup.Caller.%s", l.Requires, field))
	}
	for i := range l.Windows {
		for _, source := range slices.Concat(l.Windows[i].Key...) {
			if field, ok := fields[weir.SourceOf(source).Credential()]; ok && !who.Verifies(source) {
				problems = append(problems, fmt.Errorf("by %s: nothing verifies it: set Setup.Caller.%s", source, field))
			}
		}
	}
	return problems
}

const byKeyFunc = "count by a KeyFunc that reads the parameter of your router"

// unrouted reports the path parameters that l counts by without a route that has them: all values
// would share one budget.
func unrouted(l *weir.Limiter) (problems []error) {
	if len(l.Routes) > 0 {
		return nil // then it is a problem of the policy
	}
	for _, row := range l.Rows() {
		for _, source := range slices.Concat(row.Key...) {
			if name, ok := strings.CutPrefix(source, identity.Path+":"); ok {
				problems = append(problems, fmt.Errorf("key source %q: route \"/*\" has no parameter {%s}: set Setup.Limiter.Routes to routes that have it, or "+byKeyFunc, source, name))
			}
		}
	}
	return problems
}

// wrapAll is Wrap for a limiter that covers all requests, whatever their path is: "OPTIONS *" too.
// No path chooses another limiter, so none is ambiguous.
func (m *Middleware) wrapAll(limiter string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			m.Serve(w, r, m.decider.Named(limiter), next)
		})
	}
}

func quoted(texts []string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = fmt.Sprintf("%q", text)
	}
	return strings.Join(all, ", ")
}

// A proxyAlarm logs that requests come through a proxy that is not trusted, once for each of a few.
type proxyAlarm struct {
	who   *identity.Resolver
	field string // empty: X-Forwarded-For
	log   *slog.Logger
	peers notice.Peers
}

func (p *proxyAlarm) around(wrap func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	field := "X-Forwarded-For"
	if p.field != "" {
		field = textproto.CanonicalMIMEHeaderKey(p.field)
	}
	return func(next http.Handler) http.Handler {
		limited := wrap(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if len(r.Header[field]) > 0 {
				p.look(field, r.RemoteAddr)
			}
			limited.ServeHTTP(w, r)
		})
	}
}

// look warns if the peer is at an address that proxies have. A client on the Internet may send the
// field for no reason.
func (p *proxyAlarm) look(field, remote string) {
	peer := identity.ParsePeer(remote)
	if notice.IsNear(peer) && !p.who.Trusts(peer) && p.peers.Allow(peer) {
		p.log.Warn("requests come through a proxy that is not trusted, so all of its clients share one budget by address",
			"peer", peer, "field", field, "hint", "if it is your proxy, add its network to TrustedProxies of httplimit.Setup.Caller; a client may send the field too")
	}
}

// KeyFunc returns a key source for identity.Options.Extra, by which windows can count: a request
// has the value that find returns. ok is false if it has none; then the next alternative of the
// window counts it ("by customer or account"), in the end its address.
//
// kind is how far the value can be trusted: weir.Credential only if your service has verified it,
// and weir.Chosen for what a caller can make up. What a caller chooses must be joined to what it
// cannot choose, as in "by tenant+ip", unless Limiter.Chosen declares otherwise.
//
// find is called concurrently, perhaps more than once for a request, and must not change it. It can
// read what outer middleware has left in the request's context, and the parameters of the router
// that has called the middleware: r.PathValue("tenant") of http.ServeMux, or another router's own.
func KeyFunc(name string, kind weir.SourceKind, find func(r *http.Request) (value string, ok bool)) identity.Source {
	if find == nil {
		return identity.Source{Source: weir.Source{Name: name}} // which identity.New rejects
	}
	return identity.Source{
		Source: weir.Source{Name: name, Kind: kind, Optional: true},
		Find: func(r identity.Request, _ string) (string, bool) {
			if r, ok := r.(*identity.HTTPRequest); ok {
				return find(r.Request)
			}
			return "", false
		},
	}
}
