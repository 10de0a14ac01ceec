// Package identity determines who is calling: the client's address behind trusted proxies, the
// agent that a widget embeds, the visitor session, the workspace API token, and the client
// certificate.
//
// A [Resolver] holds the configuration: which proxies are trusted, and which keys verify
// credentials. A [Caller] is one request seen through it. It works lazily and determines each value
// at most once, so a limiter that counts by address never looks at a credential. A credential that
// cannot be verified counts as none, and a caller without one is counted by its address.
//
// The package reads a request through the narrow interface [Request], of which [HTTPRequest] is one
// implementation.
package identity

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// The key sources that are built in (contract, section 5). weir.Sources describes each; sources.go
// has how a request answers it.
const (
	IP       = "ip"       // the client's address; IPv6 by its network (D12)
	Agent    = "agent"    // the assistant that the widget embeds, chosen by the caller (D13)
	Session  = "session"  // the visitor session, a verified JWT (D14)
	Token    = "token"    // the id of a verified workspace API token (D15)
	Header   = "header"   // the value of an HTTP field, chosen by the caller: header:X-Api-Key
	Path     = "path"     // a parameter of the route, chosen by the caller: path:tenant
	Cookie   = "cookie"   // the value of a cookie, chosen by the caller: cookie:session_id
	Query    = "query"    // the value of a query parameter, chosen by the caller: query:tenant
	Host     = "host"     // the name of the host that the request is for, chosen by the caller
	Claim    = "claim"    // the value of a claim of the verified visitor session: claim:org.id
	Cert     = "cert"     // the name in the verified client certificate (CertificateName)
	Everyone = "everyone" // the same for all callers: one budget that they share
)

// A Request is what this package reads of a request. Implementations need not be safe for
// concurrent use.
type Request interface {
	// Peer returns the remote address of the connection, after a PROXY protocol header was removed:
	// ParsePeer's, or the zero Addr if there is none.
	Peer() netip.Addr
	// Header returns the lines of a field by its canonical name, in order.
	Header(name string) []string
	// Host returns the host and perhaps the port that the request is for: the field Host, or
	// :authority in HTTP/2; empty if it has none.
	Host() string
	// RawQuery returns the query without the question mark, as received. QueryValue reads it.
	RawQuery() string
	// Certificate returns the certificate that the client has shown on the connection and that the
	// server has verified; nil if there is none.
	Certificate() *Certificate
	// Body returns the first bytes of the body, at most limit, and leaves the whole body to the
	// next reader. They are valid until the request has ended, and must not be changed.
	Body(limit int) []byte
}

// Options are a Resolver's settings. The zero value trusts no proxy and verifies nothing.
type Options struct {
	// TrustedProxies are the networks of proxies whose header about the client is believed; none by
	// default.
	TrustedProxies []netip.Prefix

	// ClientIPHeader is the one field that trusted proxies write: X-Forwarded-For (the default,
	// also if it is empty), Forwarded or X-Real-IP.
	ClientIPHeader string

	// IPv6Prefix is how many bits of an IPv6 address are counted as one caller; 0 means 64.
	IPv6Prefix int

	// Sessions verifies visitor sessions. If it is nil, no caller has a verified session (D17).
	Sessions *Sessions

	// Tokens finds API tokens. If it is nil, no caller has a verified token (D17). If it is Keys
	// too, tokens may have any form.
	Tokens Tokens

	// TokenFrom are the places where requests may have their API tokens, each once; none means
	// Authorization: Bearer. A request with different tokens in two of them has no valid one.
	// Sessions are always in Authorization: Bearer, and one that Sessions verifies is no different
	// token.
	TokenFrom []Place

	// Certificates means that the server asks clients for certificates and verifies them, as
	// tls.VerifyClientCertIfGiven does. If it is false, no caller has a verified certificate (D17).
	Certificates bool

	// Extra are further key sources, those of the embedding service.
	Extra []Source

	// Now is the clock that decides when credentials expire; nil means time.Now. A Resolver follows
	// a wall clock that is set within a tenth of a second.
	Now func() time.Time
}

// A Resolver determines who is calling. It is safe for concurrent use.
type Resolver struct {
	options  Options
	header   string
	extra    []extraSource
	places   []Place // of tokens
	sessions verifiedCache[verifiedSession]
	tokens   verifiedCache[checkedToken]
	spent    timedSet[spentKey] // addresses that have spent the fallback budget of a limiter
	checks   checkTable
	clock    wallClock // if Options.Now is nil

	// trials are limiters in mode shadow and candidates. What they verify makes no difference to
	// the policy in force.
	trials struct {
		sessions verifiedCache[verifiedSession]
		checks   checkTable
	}
}

// New checks the options and returns a Resolver.
func New(o Options) (*Resolver, error) {
	r := &Resolver{options: o, header: "X-Forwarded-For"}
	r.checks.begin(time.Now())
	r.trials.checks.begin(time.Now())
	if o.ClientIPHeader != "" {
		i := slices.IndexFunc(clientIPHeaders, func(h string) bool { return strings.EqualFold(h, o.ClientIPHeader) })
		if i < 0 {
			return nil, fmt.Errorf("new resolver: client IP header %q: %s are allowed", o.ClientIPHeader, strings.Join(clientIPHeaders, ", "))
		}
		r.header = canonicalHeaders[i]
	}
	if r.options.IPv6Prefix == 0 {
		r.options.IPv6Prefix = 64
	}
	if p := r.options.IPv6Prefix; p < 1 || p > 128 {
		return nil, fmt.Errorf("new resolver: IPv6 prefix %d: 1 to 128 bits are allowed, 64 by default", p)
	}
	r.options.TrustedProxies = slices.Clone(o.TrustedProxies)
	for i, p := range o.TrustedProxies {
		switch {
		case !p.IsValid():
			return nil, errors.New("new resolver: a trusted proxy is not a network, such as 192.0.2.0/24")
		case p.Addr().Is4In6() && p.Bits() >= 96: // peers are compared as IPv4
			r.options.TrustedProxies[i] = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
	}
	var err error
	if r.extra, err = extraSources(o.Extra); err != nil {
		return nil, fmt.Errorf("new resolver: %w", err)
	}
	if r.places, err = checkPlaces(o.TokenFrom); err != nil {
		return nil, fmt.Errorf("new resolver: %w", err)
	}
	return r, nil
}

var (
	clientIPHeaders = []string{"X-Forwarded-For", "Forwarded", "X-Real-IP"}
	// canonicalHeaders has the spelling of net/http.
	canonicalHeaders = []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip"}
)

// Verifies reports whether source is a credential, or read from a credential, that this Resolver
// can verify.
func (r *Resolver) Verifies(source string) bool {
	switch credentialOf(source) {
	case Session:
		return r.options.Sessions != nil
	case Token:
		return r.options.Tokens != nil
	case Cert:
		return r.options.Certificates
	}
	return false
}

// credentialOf returns the credential that a source is or is read from (weir.Source.Credential).
func credentialOf(source string) string {
	if source == Session || source == Token { // as nearly always
		return source
	}
	return weir.SourceOf(source).Credential()
}
