package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A workspace API token is wpt_<id>_<secret><checksum> in lower-case base32 (D15). The id has ten
// characters; it is public, and budgets are counted by it. The secret has 32 (160 bits). The
// checksum has seven, and lets a mistyped token be rejected without a look-up.
const (
	tokenPrefix   = "wpt_"
	tokenIDLen    = 10
	tokenSecret   = 32
	tokenChecksum = 7
	tokenLen      = len(tokenPrefix) + tokenIDLen + 1 + tokenSecret + tokenChecksum
)

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// TokenHash is the stored form of a token: SHA-256 of all of it. Its secret is random, so no slower
// hash is needed.
type TokenHash [32]byte

// NewToken makes a token from 27 bytes of random. Store only id and hash.
func NewToken(random io.Reader) (token, id string, hash TokenHash, err error) {
	var b [27]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", "", TokenHash{}, fmt.Errorf("new token: %w", err)
	}
	id = lowerBase32.EncodeToString(b[:7])[:tokenIDLen]
	body := tokenPrefix + id + "_" + lowerBase32.EncodeToString(b[7:])
	token = body + tokenSum(body)
	return token, id, sha256.Sum256([]byte(token)), nil
}

func tokenSum(body string) string {
	var b [5]byte
	binary.BigEndian.PutUint32(b[:], crc32.ChecksumIEEE([]byte(body)))
	return lowerBase32.EncodeToString(b[:])[:tokenChecksum]
}

// ParseToken checks the form and the checksum of a token, and returns its id and hash. It does not
// compare the hash with a stored one.
func ParseToken(token string) (id string, hash TokenHash, err error) {
	if !strings.HasPrefix(token, tokenPrefix) {
		return "", TokenHash{}, errors.New("the token does not begin with wpt_")
	}
	if len(token) != tokenLen || token[len(tokenPrefix)+tokenIDLen] != '_' {
		return "", TokenHash{}, fmt.Errorf("the token is incomplete: it has %d characters, a whole one %d", len(token), tokenLen)
	}
	id = token[len(tokenPrefix) : len(tokenPrefix)+tokenIDLen]
	body := token[:len(token)-tokenChecksum]
	if !isLowerBase32(id) || !isLowerBase32(body[len(body)-tokenSecret:]) || tokenSum(body) != token[len(body):] {
		return "", TokenHash{}, errors.New("the token is mistyped: its checksum does not fit")
	}
	return id, sha256.Sum256([]byte(token)), nil
}

func isLowerBase32(s string) bool {
	for _, c := range []byte(s) {
		if !('a' <= c && c <= 'z' || '2' <= c && c <= '7') {
			return false
		}
	}
	return true
}

// A StoredToken is what a store keeps of a token.
type StoredToken struct {
	ID        string
	Workspace string // the workspace it belongs to; may be empty
	Plan      string // the plan that it has been sold; may be empty
	Hash      TokenHash
	Revoked   bool
	Expires   time.Time // the first moment at which it is refused; zero: it never expires
}

// ErrUnknownToken means that no token has that id.
var ErrUnknownToken = errors.New("no such token")

// Tokens finds API tokens by id. Implementations are safe for concurrent use and quick: a token in
// use is looked up about twice a second, so that a revoked one stops working within a second.
type Tokens interface {
	// Lookup returns the token with that id. It returns ErrUnknownToken if there is no such token,
	// or another error if it cannot find out. Then no token with that id is accepted.
	Lookup(id string) (StoredToken, error)
}

// Keys are Tokens that also find a key of any form, by its hash. With them in Options.Tokens, a
// Resolver accepts keys that another service makes.
type Keys interface {
	Tokens

	// LookupHash returns the key with that hash. Its errors are those of Lookup.
	LookupHash(hash TokenHash) (StoredToken, error)
}

// TokenClaims describes a verified API token.
type TokenClaims struct {
	ID        string    // public; budgets are counted by it
	Workspace string    // the workspace it belongs to; may be empty
	Plan      string    // the plan that it has been sold (weir.Plans.By token); may be empty
	Expires   time.Time // the first moment at which it is refused; zero: it never expires
}

func claimsOf(t *StoredToken) TokenClaims {
	return TokenClaims{ID: t.ID, Workspace: t.Workspace, Plan: t.Plan, Expires: t.Expires}
}

// ErrUnreadable means that a credential could not be verified because its store did not answer.
// Options.Tokens reports the cause; the client does not see it.
var ErrUnreadable = errors.New("the credential could not be looked up")

var (
	errTokenRefused = errors.New("it is unknown or was revoked")
	errTokenExpired = errors.New("it has expired")
)

// A checkedToken is a token that verified, with the time of its last look-up.
type checkedToken struct {
	id      string // as the token itself has it; empty: it is found by its hash
	hash    TokenHash
	claims  atomic.Pointer[TokenClaims] // a look-up may find another workspace, plan or expiry
	looked  atomic.Int64                // when it was last found valid, in Unix nanoseconds
	looking sync.Mutex                  // held during a look-up
	failed  time.Time                   // when the last look-up failed, or zero; guarded by looking
	why     error                       // the error of that look-up
}

// checkToken verifies a token.
func checkToken(tokens Tokens, token string, now time.Time) (*checkedToken, error) {
	id, hash, err := readToken(tokens, token)
	if err != nil {
		return nil, err
	}
	stored, err := lookUp(tokens, id, hash, now)
	if err != nil {
		return nil, err
	}
	t := &checkedToken{id: id, hash: hash}
	claims := claimsOf(&stored)
	t.claims.Store(&claims)
	t.looked.Store(now.UnixNano())
	return t, nil
}

// readToken returns what tokens find a token by: its id and its hash, or its hash alone. One of
// Weir's own form must have the right checksum in either case.
func readToken(tokens Tokens, token string) (id string, hash TokenHash, err error) {
	if _, ok := tokens.(Keys); !ok {
		return ParseToken(token)
	}
	hash, err = HashKey(token)
	return "", hash, err
}

// lookUp finds a token by its id, or by its hash if id is empty.
func lookUp(tokens Tokens, id string, hash TokenHash, now time.Time) (stored StoredToken, err error) {
	if keys, ok := tokens.(Keys); ok && id == "" {
		// How long a look-up by hash takes may depend on the stored hashes. That reveals nothing: a
		// caller cannot choose the hash of what it sends, so it cannot approach a stored one.
		stored, err = keys.LookupHash(hash)
	} else if stored, err = tokens.Lookup(id); err == nil && stored.ID != id {
		err = ErrUnknownToken
	}
	if errors.Is(err, ErrUnknownToken) {
		subtle.ConstantTimeCompare(hash[:], hash[:]) // an unknown id takes as long as a known one
		return StoredToken{}, errTokenRefused
	}
	if err != nil {
		return StoredToken{}, unreadable{err}
	}
	if subtle.ConstantTimeCompare(hash[:], stored.Hash[:]) != 1 || stored.Revoked {
		return StoredToken{}, errTokenRefused
	}
	if hasExpired(stored.Expires, now) {
		return StoredToken{}, errTokenExpired
	}
	return stored, nil
}

// HasExpired reports whether the token is refused at now because it has expired.
func (t *StoredToken) HasExpired(now time.Time) bool { return hasExpired(t.Expires, now) }

// hasExpired reports whether a token that expires at that time, or never if it is zero, is refused
// at now.
func hasExpired(expires, now time.Time) bool { return !expires.IsZero() && !now.Before(expires) }

// unreadable is an ErrUnreadable with its cause, which its text does not show.
type unreadable struct{ cause error }

func (u unreadable) Error() string   { return ErrUnreadable.Error() }
func (u unreadable) Unwrap() []error { return []error{ErrUnreadable, u.cause} }

// A revoked token must stop working within a second (D15). The age of a TokenFile's answer and
// recheckMust together stay under that.
const (
	recheckMay  = 400 * time.Millisecond // one request looks the token up, the others continue
	recheckMust = 700 * time.Millisecond // every request waits for a look-up
)

// holds returns an error if the token is no longer accepted. It looks the token up again if its
// last look-up was a while ago.
func (t *checkedToken) holds(tokens Tokens, now time.Time) error {
	if err := t.recheck(tokens, now); err != nil {
		return err
	}
	if hasExpired(t.claims.Load().Expires, now) {
		return errTokenExpired
	}
	return nil
}

func (t *checkedToken) recheck(tokens Tokens, now time.Time) error {
	since := t.since(now)
	if since < recheckMay {
		return nil
	}
	if since >= recheckMust {
		t.looking.Lock()
	} else if !t.looking.TryLock() {
		return nil // another request is looking
	}
	defer t.looking.Unlock()
	if t.since(now) < recheckMay {
		return nil // another request has just looked
	}
	if t.why != nil && elapsed(now.Sub(t.failed)) < recheckMay {
		return t.why // a store that fails is not asked by each request that waited
	}
	stored, err := lookUp(tokens, t.id, t.hash, now)
	t.failed, t.why = now, err
	if err != nil {
		return err
	}
	if claims := claimsOf(&stored); *t.claims.Load() != claims {
		t.claims.Store(&claims)
	}
	t.looked.Store(now.UnixNano())
	return nil
}

// since returns how long ago the token was looked up.
func (t *checkedToken) since(now time.Time) time.Duration {
	return elapsed(time.Duration(now.UnixNano() - t.looked.Load()))
}

// elapsed corrects a negative time since a look-up. Slightly negative becomes 0: another request
// read the clock later and has looked the token up meanwhile. Very negative becomes recheckMust,
// since the clock was set back.
func elapsed(since time.Duration) time.Duration {
	switch {
	case since <= -recheckMust:
		return recheckMust
	case since < 0:
		return 0
	}
	return since
}
