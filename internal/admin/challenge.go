package admin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// Realm is the realm in WWW-Authenticate of every refusal before a token is accepted. Any server
// can send it, so it proves nothing.
const Realm = "weir admin"

const challengePath = "/challenge"

// A Challenge lets a client find out, before it sends a token, whether a server knows that token.
//
// The client sends a fresh nonce and the token's public id. The server answers with an HMAC-SHA256
// of the nonce and of the Host field that it received, keyed by the token's SHA-256, which is what
// it stores. A server without that hash cannot compute the answer, and because of the nonce it
// cannot replay an answer that it recorded. Because Host is included, a server with another name
// that relays the challenge to the real one gets an answer that it cannot use. A relay that the
// client reaches by a name of the real server, such as another port of the same machine, is not
// detected: it looks like a tunnel.
//
// A Challenge is for one connection and one goroutine.
type Challenge struct {
	hash  [sha256.Size]byte
	nonce string
}

// NewChallenge returns a Challenge with a fresh nonce for a token.
func NewChallenge(token string) *Challenge {
	return &Challenge{hash: sha256.Sum256([]byte(token)), nonce: rand.Text()}
}

// Path returns the path and query to GET. The token cannot be computed from it.
func (c *Challenge) Path() string {
	return challengePath + "?" + url.Values{"nonce": {c.nonce}, "token": {tokenID(c.hash)}}.Encode()
}

// Errors of Check.
var (
	ErrNoProof   = errors.New("the answer does not prove that the server knows the token")
	ErrOtherHost = errors.New("the answer is for another Host")
)

// Check returns nil if body, the answer to a GET of Path with that Host field, proves that the
// server knows the token. The error is ErrOtherHost if the server knows it but received another
// Host, and ErrNoProof otherwise.
func (c *Challenge) Check(host string, body []byte) error {
	var a ChallengeAnswer
	if err := json.Unmarshal(body, &a); err != nil {
		return ErrNoProof
	}
	if !hmac.Equal([]byte(a.Proof), []byte(proof(c.hash, c.nonce, a.Host))) {
		return ErrNoProof
	}
	if !strings.EqualFold(a.Host, host) {
		return fmt.Errorf("%w: %.200q was asked and %.200q received", ErrOtherHost, host, a.Host)
	}
	return nil
}

// A ChallengeAnswer is the body of the answer to a challenge, as JSON.
type ChallengeAnswer struct {
	Host  string `json:"host"`  // as the server received it
	Proof string `json:"proof"` // see proof
}

// proof returns the HMAC that answers a challenge. A nonce has no line break, so no two inputs are
// the same bytes.
func proof(hash [sha256.Size]byte, nonce, host string) string {
	return base64.RawURLEncoding.EncodeToString(keyed(hash, "proof\n"+nonce+"\n"+host))
}

// tokenID returns the public id of the token with that hash.
func tokenID(hash [sha256.Size]byte) string {
	return base64.RawURLEncoding.EncodeToString(keyed(hash, "id")[:12])
}

func keyed(hash [sha256.Size]byte, text string) []byte {
	m := hmac.New(sha256.New, hash[:])
	m.Write([]byte("weir admin " + text))
	return m.Sum(nil)
}

var nonceForm = regexp.MustCompile(`^[A-Za-z0-9_-]{16,128}$`)

// ErrNonce is the error of a nonce that no Challenge has made.
var ErrNonce = errors.New("nonce must be 16 to 128 letters, digits, dashes and underscores")

// Prove returns the answer to the challenge in a request's query. host is the request's Host field.
// It returns ErrNoToken if the token is unknown, and ErrNonce if the nonce is malformed.
func (t *Tokens) Prove(query url.Values, host string) (ChallengeAnswer, error) {
	nonce, id := query.Get("nonce"), query.Get("token")
	if !nonceForm.MatchString(nonce) {
		return ChallengeAnswer{}, ErrNonce
	}
	known, err := t.all()
	if err != nil {
		return ChallengeAnswer{}, err
	}
	for i := range known {
		if known[i].id == id {
			return ChallengeAnswer{Host: host, Proof: proof(known[i].hash, nonce, host)}, nil
		}
	}
	return ChallengeAnswer{}, ErrNoToken
}

// answerChallenge proves to a client that this server knows the token that the client is about to
// send. A token that is unknown counts as a wrong one.
func (g *guard) answerChallenge(w http.ResponseWriter, r *http.Request) {
	switch a, err := g.tokens.Prove(r.URL.Query(), r.Host); {
	case err == nil:
		answer(w, http.StatusOK, a)
	case errors.Is(err, ErrNonce):
		refuse(w, http.StatusBadRequest, "bad_request", "The "+err.Error()+".")
	case errors.Is(err, ErrNoToken):
		g.unknownToken(w, r)
	default:
		g.tokensUnreadable(w, err)
	}
}
