package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// SessionClaims holds the claims of a verified visitor session.
type SessionClaims struct {
	// Key is what a budget is counted by: the issuer (or the verifying key's id) with sid, else
	// with jti, else a hash of what was signed. Two different sessions never have the same Key.
	Key string

	ID      string         // sid, else jti; may be empty
	Issuer  string         // iss; may be empty
	Subject string         // sub; may be empty
	Expires time.Time      // exp
	Claims  map[string]any // all claims; read only

	owner     string    // the issuer or the verifying key's id, as Key begins
	notBefore time.Time // nbf; zero if the token has none
	from      time.Time // notBefore, with the leeway; zero if the token has none
	until     time.Time // Expires, with the leeway
	verified  time.Time // when its signature was checked
}

// SessionsOptions decide which visitor sessions are accepted. Keys or Lookup is required.
type SessionsOptions struct {
	// Keys verify tokens, each for its one algorithm.
	Keys []SessionKey

	// Lookup, if set, returns keys beside Keys, for a key set that changes (package identity/jwks).
	// It is never called for HS256, must return a public key that is meant for alg, and must not
	// block for long. A session that verified is accepted for up to five minutes after its key is
	// withdrawn.
	Lookup func(kid, alg string) (key crypto.PublicKey, err error)

	Issuer   string // iss must equal it; empty accepts any
	Audience string // aud must contain it; empty accepts any

	// Leeway is the clock difference that is tolerated for exp and nbf; 0 by default.
	Leeway time.Duration

	// BudgetPerToken gives each token a budget of its own, which is the literal reading of the
	// contract's "per JWT", instead of each session.
	BudgetPerToken bool

	// Refreshed, if set, is called once, with the issuer, when one subject has brought two verified
	// tokens without a sid. Each has a budget of its own, by its jti or its signed part, so a
	// service that refreshes its tokens gives a new budget with each. It is not called with
	// BudgetPerToken. It must not block.
	Refreshed func(issuer string)

	// WithoutSid, if set, is called once, with their number, when 20 verified tokens of different
	// budgets have come, and none with a sid. Whether some of them were refreshed is not known:
	// they had no subject, or each another one. It is not called after Refreshed, nor with
	// BudgetPerToken. It must not block.
	WithoutSid func(tokens int)
}

// Sessions verifies visitor sessions: JWTs under HS256, RS256, ES256 or EdDSA (D14). It is safe for
// concurrent use.
type Sessions struct {
	options   SessionsOptions
	methods   []string
	refreshed *refreshedTable // nil: not looked for
}

// NewSessions checks the options.
func NewSessions(o SessionsOptions) (*Sessions, error) {
	if len(o.Keys) == 0 && o.Lookup == nil {
		return nil, errors.New("new sessions: no key to verify with: give key files or a key set")
	}
	if o.Leeway < 0 || o.Leeway > 10*time.Minute {
		return nil, fmt.Errorf("new sessions: leeway %v: 0 to 10m is allowed", o.Leeway)
	}
	s := &Sessions{options: o}
	if (o.Refreshed != nil || o.WithoutSid != nil) && !o.BudgetPerToken {
		s.refreshed = &refreshedTable{seed: maphash.MakeSeed()}
	}
	for _, k := range o.Keys {
		if k.alg == "" {
			return nil, errors.New("new sessions: a key is empty: make it with LoadKey or NewSecretKey")
		}
		s.methods = append(s.methods, k.alg)
	}
	if o.Lookup != nil {
		// Never a secret from a public key set.
		s.methods = append(s.methods, "RS256", "ES256", "EdDSA")
	}
	return s, nil
}

// trustVerified is how long a verified signature is trusted if keys can be withdrawn.
const trustVerified = 5 * time.Minute

// isStale reports whether a session in the cache must be verified again, since its key may have
// been withdrawn.
func (s *Sessions) isStale(c *SessionClaims, now time.Time) bool {
	return s.options.Lookup != nil && now.Sub(c.verified) > trustVerified
}

// holds returns an error if a session in the cache has expired, or has not begun.
func (c *SessionClaims) holds(now time.Time) error {
	if !now.Before(c.until) {
		return fmt.Errorf("the session expired at %s: begin a new one", c.Expires.UTC().Format(time.RFC3339))
	}
	if !c.from.IsZero() && now.Before(c.from) {
		return fmt.Errorf("the session begins at %s", c.notBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// verify checks everything about a token and returns its claims. It calls allow before it verifies
// a public-key signature, which is expensive, and returns the error if there is one.
func (s *Sessions) verify(token string, now time.Time, allow func() error) (*SessionClaims, error) {
	if err := checkSpelling(token); err != nil {
		return nil, err
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods(s.methods),
		jwt.WithExpirationRequired(),
		jwt.WithStrictDecoding(),
		jwt.WithLeeway(s.options.Leeway),
		jwt.WithTimeFunc(func() time.Time { return now }),
	}
	if s.options.Issuer != "" {
		options = append(options, jwt.WithIssuer(s.options.Issuer))
	}
	if s.options.Audience != "" {
		options = append(options, jwt.WithAudience(s.options.Audience))
	}
	var keys jwt.VerificationKeySet
	var ids []string
	var early error // found before the signature was verified
	parsed, err := jwt.NewParser(options...).Parse(token, func(t *jwt.Token) (any, error) {
		var err error
		keys, ids, err = s.keysFor(t)
		if err != nil || t.Method.Alg() == "HS256" {
			return keys, err
		}
		// The parser checks the claims after the signature, and they cost less.
		if early = checkClaims(t.Claims.(jwt.MapClaims), options); early == nil {
			early = allow()
		}
		return keys, early
	})
	if early != nil {
		return nil, early
	}
	if err != nil {
		return nil, explain(err)
	}
	if err := checkTimes(parsed.Claims.(jwt.MapClaims)); err != nil {
		return nil, err
	}
	claims := s.claims(parsed, token, ids[verifying(parsed, token, keys)])
	claims.verified = now
	if err := claims.holds(now); err != nil {
		return nil, err
	}
	s.note(claims)
	return claims, nil
}

// note calls Refreshed or WithoutSid if a verified session shows that.
func (s *Sessions) note(c *SessionClaims) {
	if s.refreshed == nil {
		return
	}
	switch s.refreshed.note(c) {
	case refreshedSubject:
		if s.options.Refreshed != nil {
			s.options.Refreshed(c.Issuer)
		}
	case withoutSid:
		if s.options.WithoutSid != nil {
			s.options.WithoutSid(manyWithoutSid)
		}
	}
}

// checkSpelling rejects a text that is no JWS in compact form, before anything is decoded.
func checkSpelling(token string) error {
	dots := 0
	for i := range len(token) {
		switch c := token[i]; {
		case c == '.':
			dots++
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_':
		default:
			return errors.New("the token is not a JWT: it holds a character outside base64url")
		}
	}
	if dots != 2 {
		return errors.New("the token is not a JWT, which has three parts joined by dots")
	}
	return nil
}

// weight is about how many bytes the claims take. A short payload can hold very many small values.
func (c *SessionClaims) weight() int {
	return weigh(c.Claims)
}

func weigh(value any) int {
	switch v := value.(type) {
	case string:
		return len(v) + 16
	case []any:
		n := 24
		for _, e := range v {
			n += 16 + weigh(e)
		}
		return n
	case map[string]any:
		n := 48
		for name, e := range v {
			n += 64 + len(name) + weigh(e)
		}
		return n
	}
	return 8
}

// checkClaims rejects claims that the parser would reject with those options, and times that
// checkTimes rejects.
func checkClaims(claims jwt.MapClaims, options []jwt.ParserOption) error {
	if err := jwt.NewValidator(options...).Validate(claims); err != nil {
		return explain(err)
	}
	return checkTimes(claims)
}

// checkTimes rejects exp and nbf outside the years 1970 to 9999 (RFC 7519, section 2: seconds since
// 1970). In the library they would wrap around, and a session that begins in the far future would
// be valid now.
func checkTimes(claims jwt.MapClaims) error {
	const last = 253402300799
	for _, name := range []string{"exp", "nbf"} {
		if at, ok := claims[name].(float64); ok && !(0 <= at && at <= last) {
			return fmt.Errorf("the token's %s is not a time: %g", name, at)
		}
	}
	return nil
}

// verifying returns which of keys verified t.
func verifying(t *jwt.Token, token string, keys jwt.VerificationKeySet) int {
	signed := token[:strings.LastIndexByte(token, '.')]
	for i := range len(keys.Keys) - 1 {
		if t.Method.Verify(signed, t.Signature, keys.Keys[i]) == nil {
			return i
		}
	}
	return len(keys.Keys) - 1 // the parser verified with one of them
}

// keysFor returns the keys that may have signed t, which are those of its algorithm, and their ids.
func (s *Sessions) keysFor(t *jwt.Token) (set jwt.VerificationKeySet, ids []string, err error) {
	if _, critical := t.Header["crit"]; critical {
		return set, nil, errors.New("the token has critical extensions, and none is supported")
	}
	alg := t.Method.Alg()
	kid, _ := t.Header["kid"].(string)
	for _, k := range s.options.Keys {
		if k.alg == alg {
			set.Keys = append(set.Keys, k.key)
			ids = append(ids, k.id)
		}
	}
	if s.options.Lookup != nil && alg != "HS256" {
		key, lookupErr := s.options.Lookup(kid, alg)
		if lookupErr == nil && algorithmOf(key) == alg {
			set.Keys = append(set.Keys, key)
			ids = append(ids, kid)
		}
		err = lookupErr
	}
	if len(set.Keys) == 0 {
		if err == nil {
			err = fmt.Errorf("no key here is for %s", alg)
		}
		return set, nil, fmt.Errorf("the token's key is unknown: %w", err)
	}
	return set, ids, nil
}

// algorithmOf returns the one algorithm that a public key is for, or "" if it is not one of ours.
func algorithmOf(key crypto.PublicKey) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k != nil && k.N != nil && k.N.BitLen() >= minRSABits {
			return "RS256"
		}
	case *ecdsa.PublicKey:
		if k != nil && k.Curve == elliptic.P256() {
			return "ES256"
		}
	case ed25519.PublicKey:
		if len(k) == ed25519.PublicKeySize { // Verify panics on another
			return "EdDSA"
		}
	}
	return ""
}

// claims makes the SessionClaims of a verified token. Key never depends on the encoding of the
// signature: a signature can be encoded anew, and each encoding would be a fresh budget.
func (s *Sessions) claims(t *jwt.Token, token, keyID string) *SessionClaims {
	all := t.Claims.(jwt.MapClaims)
	text := func(name string) string { v, _ := all[name].(string); return v }
	c := &SessionClaims{Issuer: text("iss"), Subject: text("sub"), Claims: all}
	if exp, err := all.GetExpirationTime(); err == nil && exp != nil {
		c.Expires = exp.Time
	}
	c.until = c.Expires.Add(s.options.Leeway)
	if nbf, err := all.GetNotBefore(); err == nil && nbf != nil {
		c.notBefore, c.from = nbf.Time, nbf.Time.Add(-s.options.Leeway)
	}
	who := appendNamed(nil, 'i', c.Issuer)
	if c.Issuer == "" {
		who = appendNamed(nil, 'k', keyID)
	}
	c.owner = string(who)
	sid, jti := text("sid"), text("jti")
	c.ID = sid
	if c.ID == "" {
		c.ID = jti
	}
	switch {
	case s.options.BudgetPerToken || c.ID == "":
		sum := sha256.Sum256([]byte(token[:strings.LastIndexByte(token, '.')]))
		who = appendNamed(who, 'h', string(sum[:]))
	case sid != "":
		who = appendNamed(who, 's', sid)
	default:
		who = appendNamed(who, 'j', jti)
	}
	c.Key = string(who)
	return c
}

// KeysOf returns the keys (SessionClaims.Key) under which the budget of a session may be counted.
// id is its sid, or its jti if its tokens have no sid. issuer is its iss. An empty issuer means the
// one in SessionsOptions; if that is empty too, it means sessions without an issuer, which are
// counted under the key that verifies them. KeysOf knows only those in Keys. It returns an error if
// the id does not determine the budget.
func (s *Sessions) KeysOf(issuer, id string) ([]string, error) {
	switch {
	case id == "":
		return nil, errors.New("the session's id is empty: it is the token's sid, or its jti if it has no sid")
	case s.options.BudgetPerToken:
		return nil, errors.New("each token has its own budget here, so a session's id does not name one")
	}
	owners, err := s.ownersOf(issuer)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, who := range owners {
		for _, kind := range []byte{'s', 'j'} {
			keys = append(keys, string(appendNamed(bytes.Clone(who), kind, id)))
		}
	}
	return keys, nil
}

// ClaimKeysOf returns the keys under which the budget of a claim's value may be counted: an integer
// is given by its decimal digits. issuer is as for KeysOf. It returns an error if the value does
// not determine the budget.
func (s *Sessions) ClaimKeysOf(issuer, value string) ([]string, error) {
	if value == "" {
		return nil, errors.New("the claim's value is empty: a session with an empty claim is counted as one without it")
	}
	owners, err := s.ownersOf(issuer)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, who := range owners {
		keys = append(keys, string(appendClaimValue(nil, string(who), value)))
	}
	return keys, nil
}

// ownersOf returns how the keys of an issuer's sessions may begin.
func (s *Sessions) ownersOf(issuer string) (owners [][]byte, err error) {
	switch {
	case issuer != "" && s.options.Issuer != "" && issuer != s.options.Issuer:
		return nil, fmt.Errorf("sessions of issuer %.80q are not accepted here; only those of %q are", issuer, s.options.Issuer)
	case issuer == "":
		issuer = s.options.Issuer
	}
	if issuer != "" {
		return [][]byte{appendNamed(nil, 'i', issuer)}, nil
	}
	for _, k := range s.options.Keys {
		owners = append(owners, appendNamed(nil, 'k', k.id))
	}
	if len(owners) == 0 {
		return nil, errors.New("sessions of any issuer are accepted here, so the session's issuer must be named too")
	}
	return owners, nil
}

// appendNamed appends a kind and a length-prefixed value, so that two different lists never encode
// alike.
func appendNamed(dst []byte, kind byte, value string) []byte {
	dst = append(dst, kind)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

var errBadSignature = errors.New("the token's signature does not verify under any key here")

// explain turns the library's errors into messages for the client that sent the token.
func explain(err error) error {
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return errors.New("the session has expired: begin a new one")
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return errors.New("the session has not begun yet")
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return errors.New("the token has another issuer than the one that is accepted here")
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return errors.New("the token is meant for another audience")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return errors.New("the token lacks a required claim, such as exp")
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return errBadSignature
	case errors.Is(err, jwt.ErrTokenUnverifiable):
		return errors.New("the token cannot be verified: its key or an extension of it is unknown here")
	}
	return errors.New("the token is malformed")
}
