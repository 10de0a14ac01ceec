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

// A workspace API token is wpt_<id>_<secret><checksum> (D15), in lower-case base32: ten characters of id, which is public
// and is what budgets are counted by, 32 of secret (160 bits), seven of checksum, which lets a mistyped token be refused
// without a look-up.
const (
	tokenPrefix   = "wpt_"
	tokenIDLen    = 10
	tokenSecret   = 32
	tokenChecksum = 7
	tokenLen      = len(tokenPrefix) + tokenIDLen + 1 + tokenSecret + tokenChecksum
)

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// TokenHash is how a token is stored: SHA-256 of the whole of it. Its secret is random, so nothing slower is needed.
type TokenHash [32]byte

// NewToken makes a token from random, of which it reads 27 bytes. Only id and hash are to be kept.
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

// ParseToken takes a token apart: its form and checksum hold, its secret has not been compared with anything.
func ParseToken(token string) (id string, hash TokenHash, err error) {
	if !strings.HasPrefix(token, tokenPrefix) {
		return "", TokenHash{}, errors.New("the token is no workspace API token: those begin with wpt_")
	}
	if len(token) != tokenLen || token[len(tokenPrefix)+tokenIDLen] != '_' {
		return "", TokenHash{}, fmt.Errorf("the token is incomplete: it has %d characters, a workspace API token %d", len(token), tokenLen)
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

// A StoredToken is what is kept of a token.
type StoredToken struct {
	ID        string
	Workspace string // whose it is; may be empty
	Hash      TokenHash
	Revoked   bool
}

// ErrUnknownToken says that no token has that id.
var ErrUnknownToken = errors.New("no such token")

// Tokens finds API tokens by id. Implementations are safe for concurrent use and quick: a token in use is looked up about
// twice a second, so that a revoked one stops working within a second.
type Tokens interface {
	// Lookup returns the token with that id, ErrUnknownToken where there is none, or another error where it is not known
	// whether there is: then nobody is believed.
	Lookup(id string) (StoredToken, error)
}

// TokenClaims is what a verified API token says.
type TokenClaims struct {
	ID        string // public; what a budget is counted by
	Workspace string // whose it is; may be empty
}

// ErrUnreadable says that it is not known whether a credential is good, because whoever knows did not answer. Its cause is
// for Options.Tokens to report, not for the caller.
var ErrUnreadable = errors.New("the credential could not be looked up")

var errTokenRefused = errors.New("the token is unknown or was revoked: create another with: weir token create")

// A checkedToken is a token that verified, and when it was last looked up.
type checkedToken struct {
	id      string
	hash    TokenHash
	claims  atomic.Pointer[TokenClaims] // a look-up may find another workspace
	looked  atomic.Int64                // when it was last known to stand, in Unix nanoseconds
	looking sync.Mutex                  // held while it is looked up again
	failed  time.Time                   // when the last look-up failed; zero where it did not. Under looking
	why     error                       // how
}

// checkToken verifies a token.
func checkToken(tokens Tokens, token string, now time.Time) (*checkedToken, error) {
	id, hash, err := ParseToken(token)
	if err != nil {
		return nil, err
	}
	stored, err := lookUp(tokens, id, hash)
	if err != nil {
		return nil, err
	}
	t := &checkedToken{id: id, hash: hash}
	t.claims.Store(&TokenClaims{stored.ID, stored.Workspace})
	t.looked.Store(now.UnixNano())
	return t, nil
}

func lookUp(tokens Tokens, id string, hash TokenHash) (StoredToken, error) {
	stored, err := tokens.Lookup(id)
	if errors.Is(err, ErrUnknownToken) {
		subtle.ConstantTimeCompare(hash[:], hash[:]) // an unknown id takes as long as a known one
		return StoredToken{}, errTokenRefused
	}
	if err != nil {
		return StoredToken{}, unreadable{err}
	}
	if subtle.ConstantTimeCompare(hash[:], stored.Hash[:]) != 1 || stored.Revoked || stored.ID != id {
		return StoredToken{}, errTokenRefused
	}
	return stored, nil
}

// unreadable is an ErrUnreadable with its cause, which its text keeps to itself.
type unreadable struct{ cause error }

func (u unreadable) Error() string   { return ErrUnreadable.Error() }
func (u unreadable) Unwrap() []error { return []error{ErrUnreadable, u.cause} }

// Together with how old a TokenFile's answer may be, lookFirst stays under the second that D15 allows.
const (
	lookAgain = 400 * time.Millisecond // one request looks again, the others go on meanwhile
	lookFirst = 700 * time.Millisecond // nobody goes on without having looked
)

// stillStands looks a token up again where that was a while ago.
func (t *checkedToken) stillStands(tokens Tokens, now time.Time) error {
	since := t.since(now)
	if since < lookAgain {
		return nil
	}
	if since >= lookFirst {
		t.looking.Lock()
	} else if !t.looking.TryLock() {
		return nil // another request is looking
	}
	defer t.looking.Unlock()
	if t.since(now) < lookAgain {
		return nil // it has just looked
	}
	if t.why != nil && apart(now.Sub(t.failed)) < lookAgain {
		return t.why // a store in trouble is not asked by everybody who waited for it
	}
	stored, err := lookUp(tokens, t.id, t.hash)
	t.failed, t.why = now, err
	if err != nil {
		return err
	}
	if t.claims.Load().Workspace != stored.Workspace {
		t.claims.Store(&TokenClaims{stored.ID, stored.Workspace})
	}
	t.looked.Store(now.UnixNano())
	return nil
}

// since returns how long ago the token was looked up.
func (t *checkedToken) since(now time.Time) time.Duration {
	return apart(time.Duration(now.UnixNano() - t.looked.Load()))
}

// apart takes a little less than nothing for nothing: it comes from a request that took its time before another one that
// has looked meanwhile. Much less is a clock that was set back, and makes it long ago.
func apart(since time.Duration) time.Duration {
	switch {
	case since <= -lookFirst:
		return lookFirst
	case since < 0:
		return 0
	}
	return since
}
