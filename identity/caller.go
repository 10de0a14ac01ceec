package identity

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// A Caller is the sender of one request. The memory belongs to the code that declares it, and Start
// fills it in. It is not for concurrent use, and its results are valid as long as the request is.
type Caller struct {
	resolver *Resolver
	request  Request
	limiter  string

	known   uint16 // which of the fields below are set
	addr    netip.Addr
	agent   string
	session *verifiedSession
	token   *TokenClaims
	cert    *Certificate
	errs    [3]error // why there is no session, no token, no certificate
	arrived time.Time

	tried    *verifiedSession // what trials have found, if the policy in force did not ask before
	triedErr error
}

const (
	knowsAddr = 1 << iota
	knowsAgent
	knowsSession
	knowsToken
	knowsTime
	knowsCert
	putOff   // its session is ErrNotChecked for a limiter, and has no second try in this request
	resolved // its session is verified, whatever its address has spent
	trying   // trials ask, and not the policy in force
	knowsTried
)

var (
	// ErrNone means that the request carries no credential of that kind.
	ErrNone = errors.New("no credential")
	// ErrUnverifiable means that this deployment has no key for credentials of that kind.
	ErrUnverifiable = errors.New("credentials of this kind are not verified here")
	// ErrNotChecked means that a session signed with a public key was not verified. A limiter
	// refuses its address without a verified session, and many bad signatures have come from there
	// within the last second (D16). It has priority when it comes again a second later.
	ErrNotChecked = errors.New("too many unverified requests from this address: the credential was not checked; send it again in a second")
)

// Start makes c the caller of req. It computes nothing yet.
func (r *Resolver) Start(c *Caller, req Request) {
	// The other fields keep their values: they are void while known is 0.
	c.resolver, c.request, c.limiter, c.known = r, req, "", 0
}

// Arrived gives c the time at which its request arrived, by time.Now, after Start: credentials are
// judged at that time, and no clock is read. It has no effect if Options.Now is set.
func (c *Caller) Arrived(at time.Time) {
	c.arrived = at
	c.known |= knowsTime
}

// Request returns the request that Start was called with.
func (c *Caller) Request() Request { return c.request }

// Limiter names the limiter that is about to ask, which decides which addresses are spent (see
// Resolver.Spent). A session that was not verified for another limiter may be verified now.
func (c *Caller) Limiter(name string) {
	if name == c.limiter {
		return
	}
	c.limiter = name
	c.known &^= resolved
	c.lookAgain()
}

// Resolve implements weir.Doubter. The limiter admits the request, so its budget bounds how many
// signatures are verified, and the session of c is verified whatever its address has spent.
func (c *Caller) Resolve() {
	c.known |= resolved
	c.lookAgain()
}

// lookAgain clears results that are ErrNotChecked.
func (c *Caller) lookAgain() {
	if !c.Unchecked() {
		return
	}
	c.known &^= knowsSession
	if c.errs[1] == ErrNotChecked { // see verifyToken
		c.known &^= knowsToken
	}
}

// appendAddr appends four bytes for IPv4, or sixteen for IPv6 with the bits after the network
// cleared.
func (c *Caller) appendAddr(dst []byte, _ string) ([]byte, bool) {
	if c.Addr(); c.addr.Is4() {
		b := c.addr.As4()
		return append(dst, b[:]...), true
	}
	a := c.network()
	if !a.IsValid() {
		return dst, false
	}
	b := a.As16()
	return append(dst, b[:]...), true
}

// network returns the part of the address that is counted.
func (c *Caller) network() netip.Addr {
	a := c.Addr()
	if a.Is6() {
		if p, err := a.Prefix(c.resolver.options.IPv6Prefix); err == nil {
			return p.Addr()
		}
	}
	return a
}

// Addr returns the client's address, IPv4 unmapped and without a zone. It is the zero Addr if the
// connection has none.
func (c *Caller) Addr() netip.Addr {
	if c.known&knowsAddr == 0 {
		c.known |= knowsAddr
		c.addr = c.resolver.clientAddr(c.request, nil)
	}
	return c.addr
}

// Chain returns the value of X-Forwarded-For for a backend: the client, then each trusted hop up to
// the peer.
func (c *Caller) Chain() string { return string(c.AppendChain(nil)) }

// AppendChain appends to dst what Chain returns.
func (c *Caller) AppendChain(dst []byte) []byte {
	if len(c.resolver.options.TrustedProxies) == 0 {
		if a := c.Addr(); a.IsValid() {
			dst = a.AppendTo(dst)
		}
		return dst
	}
	var hops []netip.Addr
	c.resolver.clientAddr(c.request, func(hop netip.Addr) { hops = append(hops, hop) })
	for i := len(hops) - 1; i >= 0; i-- {
		dst = hops[i].AppendTo(dst)
		if i > 0 {
			dst = append(dst, ", "...)
		}
	}
	return dst
}

// Agent returns the id of the assistant that the widget embeds, or the User-Agent if the request
// names none. It may be empty.
func (c *Caller) Agent() string {
	if c.known&knowsAgent == 0 {
		c.known |= knowsAgent
		c.agent = agentOf(c.request)
	}
	return c.agent
}

// AskedAgent returns the agent if Agent has been called for this request; otherwise ok is false. It
// reads nothing of the request, so that a log or a metric does not cause its body to be read.
func (c *Caller) AskedAgent() (agent string, ok bool) {
	if c.known&knowsAgent == 0 {
		return "", false
	}
	return c.agent, true
}

// Session returns the verified visitor session, or the reason that there is none: ErrNone,
// ErrUnverifiable, ErrNotChecked, or what is wrong with the credential, worded for the client.
func (c *Caller) Session() (SessionClaims, error) {
	s, err := c.verifiedSession()
	if err != nil {
		return SessionClaims{}, err
	}
	return s.SessionClaims, nil
}

func (c *Caller) verifiedSession() (*verifiedSession, error) {
	switch {
	case c.known&knowsSession != 0:
	case c.known&trying != 0:
		return c.triedSession()
	default:
		c.known |= knowsSession
		c.session, c.errs[0] = c.verifySession()
	}
	return c.session, c.errs[0]
}

// Trying implements weir.Trier. Trials take what the policy in force knows of a session. If it did
// not ask for it, they verify it, with a budget of their own: at most a hundred bad public-key
// signatures from an address a second. A session beyond that counts as none.
func (c *Caller) Trying(trials bool) {
	c.known &^= trying
	if trials {
		c.known |= trying
	}
}

func (c *Caller) triedSession() (*verifiedSession, error) {
	if c.known&knowsTried == 0 {
		c.known |= knowsTried
		c.tried, c.triedErr = c.verifySession()
	}
	return c.tried, c.triedErr
}

func (c *Caller) verifySession() (*verifiedSession, error) {
	r := c.resolver
	if r.options.Sessions == nil {
		return nil, ErrUnverifiable
	}
	credential, err := bearer(c.request)
	if err != nil {
		return nil, err
	}
	now, trial := r.now(c), c.known&trying != 0
	cache, checks := &r.sessions, &r.checks
	if trial {
		cache, checks = &r.trials.sessions, &r.trials.checks
	}
	seen := cache.find(credential)
	if seen == nil && trial {
		seen = r.sessions.find(credential)
	}
	if seen != nil {
		if err := seen.holds(now); err != nil {
			return nil, err
		}
		if !r.options.Sessions.isStale(&seen.SessionClaims, now) {
			return seen, nil
		}
	}
	took := false
	claims, err := r.options.Sessions.verify(credential, now, func() error {
		if !trial && (seen != nil || !c.isSpent(now)) { // what is in the cache keeps working (D16)
			return nil
		}
		err := c.allowCheck(checks, credential)
		took = err == nil
		return err
	})
	if took {
		checks.checked(c.network(), credential, r.latest(), err)
	}
	if err != nil {
		if seen != nil {
			cache.drop(credential) // its key was withdrawn
		}
		return nil, err
	}
	s := &verifiedSession{SessionClaims: *claims}
	cache.keep(credential, s)
	return s, nil
}

// allowCheck takes a check of the caller's address for a session. Another limiter that asks for the
// session in the same request is no second try of it.
func (c *Caller) allowCheck(checks *checkTable, credential string) error {
	if c.known&(putOff|trying) == putOff {
		return ErrNotChecked
	}
	err := checks.allow(c.network(), credential, c.resolver.latest())
	if err == ErrNotChecked && c.known&trying == 0 {
		c.known |= putOff
	}
	return err
}

// Token returns the verified API token, or the reason that there is none, as Session does.
func (c *Caller) Token() (TokenClaims, error) {
	t, err := c.tokenClaims()
	if err != nil {
		return TokenClaims{}, err
	}
	return *t, nil
}

// Verified returns nil if the caller has the verified credential that source is or is read from,
// else the reason, as Session does. For claim:NAME that is the session, with or without the claim.
// For any other source it returns ErrNone.
func (c *Caller) Verified(source string) (err error) {
	switch credentialOf(source) {
	case Session:
		_, err = c.verifiedSession()
	case Token:
		_, err = c.tokenClaims()
	case Cert:
		_, err = c.certificate()
	default:
		err = ErrNone
	}
	return err
}

// Lacks implements weir.Credentialed: credential is the name of a key source, such as "session".
func (c *Caller) Lacks(credential string) bool {
	return c.resolver.Verifies(credential) && c.Verified(credential) != nil
}

func (c *Caller) tokenClaims() (*TokenClaims, error) {
	if c.known&knowsToken == 0 {
		c.token, c.errs[1] = c.verifyToken()
		if c.known&trying == 0 || c.errs[1] != ErrNotChecked { // that is of a trial's budget
			c.known |= knowsToken
		}
	}
	return c.token, c.errs[1]
}

// maxBearer is the length in bytes of the longest credential that is accepted.
const maxBearer = 8 << 10

// errOtherScheme means that Authorization has another scheme than the one that is asked for.
var errOtherScheme = errors.New("the Authorization field has another scheme: send Bearer, a blank, and the token")

// bearer returns the credential of the one Authorization field, which must have the scheme Bearer
// (RFC 6750, section 2.1).
func bearer(req Request) (string, error) { return authorization(req, "Bearer") }

// authorization returns the credential of the one Authorization field, ErrNone if there is none, or
// errOtherScheme.
func authorization(req Request, scheme string) (string, error) {
	lines := req.Header("Authorization")
	switch len(lines) {
	case 0:
		return "", ErrNone
	case 1:
	default:
		return "", fmt.Errorf("%d Authorization fields: send one", len(lines))
	}
	line, n := lines[0], len(scheme)
	switch {
	case line == "":
		return "", ErrNone
	case len(line) < n || line[:n] != scheme && !strings.EqualFold(line[:n], scheme):
		return "", errOtherScheme
	case len(line) == n:
		return "", ErrNone
	case line[n] != ' ':
		return "", errOtherScheme
	}
	credential := line[n+1:] // rarely with blanks around it
	if strings.HasPrefix(credential, " ") || strings.HasSuffix(credential, " ") {
		credential = strings.Trim(credential, " ")
	}
	if credential == "" {
		return "", ErrNone
	}
	if len(credential) > maxBearer {
		return "", tooLong(credential)
	}
	return credential, nil
}

func tooLong(credential string) error {
	return fmt.Errorf("the token has %d bytes: at most %d are read", len(credential), maxBearer)
}

// Spent records that limiter refuses requests without a verified session from the caller's address,
// for that long. Until then, at most a hundred bad public-key signatures from that address are
// verified a second for that limiter, beside those of requests that it admits (Resolve). Sessions
// in the cache, sessions under HS256 and API tokens are always verified (D16).
func (r *Resolver) Spent(c *Caller, limiter string, span time.Duration) {
	if a := c.network(); a.IsValid() {
		r.spent.add(spentKey{limiter, a}, r.now(c).Add(span))
	}
}

// Unverified reports whether the session of c was asked for, and c has no valid one although
// sessions are verified here.
func (c *Caller) Unverified() bool {
	return c.known&knowsSession != 0 && c.errs[0] != nil && c.errs[0] != ErrUnverifiable
}

// Unchecked implements weir.Doubter: it reports whether the session of c was asked for but not
// verified (ErrNotChecked).
func (c *Caller) Unchecked() bool { return c.known&knowsSession != 0 && c.errs[0] == ErrNotChecked }

// TokenUnchecked reports whether the API token of c was asked for, and is put off with the session
// beside it.
func (c *Caller) TokenUnchecked() bool { return c.known&knowsToken != 0 && c.errs[1] == ErrNotChecked }

type spentKey struct {
	limiter string
	addr    netip.Addr
}

func (c *Caller) isSpent(now time.Time) bool {
	if c.limiter == "" || c.known&resolved != 0 || c.resolver.spent.empty() {
		return false
	}
	return c.resolver.spent.holds(spentKey{c.limiter, c.network()}, now)
}
