// Package client asks the admin listener of a running server on an operator's behalf. What it
// returns as an error has a hint for the operator (cli.Failure).
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/plaintext"
)

// A Client asks one admin listener. It is safe for concurrent use.
type Client struct {
	URL   string // http://HOST:PORT or https://HOST:PORT
	Token string // the operator's

	// PlainHTTP permits http:// to an address that is not a loopback address. Without it, no
	// connection is made there, since everybody on the network between could read the token.
	PlainHTTP bool
	// Timeout bounds one question; 0 means 15 seconds.
	Timeout time.Duration
}

// timeout is the default of Client.Timeout.
const timeout = 15 * time.Second

// The max number of bytes that are read of an answer, and of a proof.
const (
	maxAnswer = 8 << 20
	maxProof  = 4 << 10
)

// Ask asks for a path and returns the answer. change is nil for a question that changes nothing;
// otherwise it is posted as JSON. The token is sent only over a connection whose server has proved
// that it knows the token, and never after a redirect.
func (c Client) Ask(ctx context.Context, path string, change any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, timeout))
	defer cancel()
	one, hangUp := c.oneConnection()
	defer hangUp()
	if err := prove(ctx, one, c.URL, c.Token); err != nil {
		return nil, err
	}
	r, err := c.request(ctx, path, change)
	if err != nil {
		return nil, err
	}
	answer, b, err := exchange(one, r, maxAnswer)
	if err != nil {
		return nil, unanswered(c.URL, err, cli.Fail(fmt.Errorf("ask the server at %s: %w", c.URL, err), adminHint))
	}
	if answer.StatusCode != http.StatusOK {
		return nil, refused(c.URL, answer.StatusCode, b)
	}
	return b, nil
}

func (c Client) request(ctx context.Context, path string, change any) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+path, nil)
	if err != nil {
		return nil, cli.Fail(fmt.Errorf("ask %s: %w", c.URL, err), "")
	}
	r.Header.Set("Authorization", "Bearer "+c.Token)
	if change == nil {
		return r, nil
	}
	b, err := json.Marshal(change)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	r.Method, r.Body, r.ContentLength = http.MethodPost, io.NopCloser(bytes.NewReader(b)), int64(len(b))
	r.Header.Set("Content-Type", "application/json")
	return r, nil
}

// errHungUp is the error of a second connection: the proof was for the first one.
var errHungUp = errors.New("it closed the connection after it proved that it knows the token, and the token is never sent over another connection")

// errPlainHTTP is the error of a connection that would carry the token in clear text.
var errPlainHTTP = errors.New("plain HTTP to an address that is not a loopback address would show the token to the network between")

// oneConnection returns a client that makes one connection and follows no redirect. It uses no
// proxy, which would see the token. hangUp closes the connection.
func (c Client) oneConnection() (client *http.Client, hangUp func()) {
	var made atomic.Bool
	var dialer net.Dialer
	if !c.PlainHTTP && strings.HasPrefix(c.URL, "http://") {
		dialer.ControlContext = loopbackOnly // before each connection, with the address of a name
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if made.Swap(true) {
				return nil, errHungUp
			}
			return dialer.DialContext(ctx, network, addr)
		},
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, transport.CloseIdleConnections
}

// loopbackOnly returns an error for an address that is not a loopback address.
func loopbackOnly(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().Unmap().WithZone("").IsLoopback() {
		return errPlainHTTP
	}
	return nil
}

// exchange sends a request and reads the answer, at most limit bytes of its body.
func exchange(client *http.Client, r *http.Request, limit int64) (*http.Response, []byte, error) {
	answer, err := client.Do(r)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, nil, err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, limit))
	return answer, b, err
}

// unanswered returns the failure of a question without an answer. otherwise is the failure if err
// has none of the causes that are known here.
func unanswered(base string, err, otherwise error) error {
	failed := fmt.Errorf("ask the server at %s: %w", base, err)
	switch {
	case errors.Is(err, errPlainHTTP):
		return cli.Fail(fmt.Errorf("no token was sent to %s: %w", base, errPlainHTTP),
			"give --admin https://HOST:PORT, or use a tunnel: ssh -L 8081:127.0.0.1:8081 HOST; --admin-plain-http sends it if you trust that network")
	case errors.Is(err, errHungUp):
		return cli.Fail(failed, "connect to the server directly, or through a proxy that keeps connections open")
	case errors.Is(err, http.ErrSchemeMismatch):
		return cli.Fail(failed, "the server does not use TLS: give --admin http://HOST:PORT")
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return cli.Fail(failed, "use the host name in the server's certificate; SSL_CERT_FILE=FILE trusts the certificates in FILE")
	case errors.Is(err, context.DeadlineExceeded):
		return cli.Fail(fmt.Errorf("the server at %s has not answered in time", base), adminHint)
	case isDial(err):
		return cli.Fail(failed, adminHint)
	}
	return otherwise
}

// notHTTP returns the failure of a challenge to a server that accepted the connection and did not
// answer in HTTP. The cause may repeat what the server sent, so it is not printed.
func notHTTP(base string, cause error) error {
	what, hint := "it does not answer in HTTP", notAdminHint
	switch {
	case errors.Is(cause, io.EOF) || errors.Is(cause, io.ErrUnexpectedEOF) || errors.Is(cause, syscall.ECONNRESET):
		what = "it closed the connection without an answer"
	case strings.Contains(cause.Error(), tlsAlert):
		hint = "the server uses TLS: give --admin https://HOST:PORT"
	}
	return cli.Fail(fmt.Errorf("%s is not an admin listener: %s, so no token was sent", base, what), hint)
}

// tlsAlert is how net/http quotes the first bytes of an alert, with which TLS answers plain HTTP.
const tlsAlert = `\x15\x03`

// isDial reports whether no connection could be made.
func isDial(err error) bool {
	var at *net.OpError
	return errors.As(err, &at) && at.Op == "dial" || errors.As(err, new(*net.DNSError))
}

const (
	adminHint    = "is 'weir serve' running, and is --admin the address in the line admin of its start-up?"
	notAdminHint = "give the address in the line admin of the start-up of 'weir serve', by default --admin 127.0.0.1:8081; the public listener has another port"
)

// prove asks the server at base to prove that it knows the token, without sending the token. If it
// returns nil, the token may be sent over the client's connection.
func prove(ctx context.Context, client *http.Client, base, token string) error {
	challenge := admin.NewChallenge(token)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+challenge.Path(), nil)
	if err != nil {
		return cli.Fail(fmt.Errorf("ask %s: %w", base, err), "")
	}
	answer, b, err := exchange(client, r, maxProof)
	if err != nil {
		return unanswered(base, err, notHTTP(base, err))
	}
	if answer.StatusCode != http.StatusOK && strings.Contains(answer.Header.Get("WWW-Authenticate"), admin.Realm) {
		return unproven(base, answer)
	}
	err = admin.ErrNoProof
	if answer.StatusCode == http.StatusOK {
		err = challenge.Check(r.URL.Host, b)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, admin.ErrOtherHost):
		return cli.Fail(fmt.Errorf("the server at %s forwards requests to the admin listener with another Host, so no token was sent: %s", base, plaintext.Line(err.Error(), 500)),
			"connect to the server directly; a proxy must forward Host unchanged, with its port (nginx: proxy_set_header Host $http_host)")
	}
	hint := notAdminHint
	if answer.TLS == nil && answer.StatusCode == http.StatusBadRequest && bytes.Contains(b, []byte("HTTPS")) {
		hint = "the server uses TLS: give --admin https://HOST:PORT"
	}
	return cli.Fail(fmt.Errorf("%s is not an admin listener: it answers %d, and does not prove that it knows the token, so no token was sent", base, answer.StatusCode), hint)
}

// unproven returns the failure of a challenge that an admin listener has rejected. Any server can
// answer like one, so nothing of what it sends is repeated.
func unproven(base string, answer *http.Response) error {
	switch answer.StatusCode {
	case http.StatusUnauthorized:
		return cli.Fail(fmt.Errorf("the admin listener at %s does not know the token, so it was not sent", base), unknownToken)
	case http.StatusMisdirectedRequest:
		return cli.Fail(fmt.Errorf("the admin listener at %s does not accept that host name", base), unknownName)
	case http.StatusTooManyRequests:
		hint := "wait a minute"
		if seconds, err := strconv.ParseUint(answer.Header.Get(headers.RetryAfter), 10, 16); err == nil {
			hint = fmt.Sprintf("wait %d seconds; a valid token is accepted at once", seconds)
		}
		return cli.Fail(fmt.Errorf("the admin listener at %s does not know the token, and received too many wrong ones from this address", base), hint)
	}
	return cli.Fail(fmt.Errorf("the admin listener at %s answers %d, so no token was sent", base, answer.StatusCode), "the log of that server has the cause")
}

const (
	unknownToken = "the token belongs to another server, or was revoked; --data DIR holds the operator's token, and 'weir admin create NAME --role ROLE' creates others"
	unknownName  = "use the address that the server listens on, or start it with --admin-hosts and this name"
)

// refused returns the failure of a question that was answered with an error. The server's text may
// repeat what callers have chosen, so it is made fit for a terminal.
func refused(base string, status int, body []byte) error {
	var answer struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(body, &answer) != nil || answer.Error.Message == "" {
		return cli.Fail(fmt.Errorf("the server at %s answers %d, but not like the admin listener of 'weir serve'", base, status), adminHint)
	}
	hint := ""
	switch {
	case status == http.StatusUnauthorized:
		hint = unknownToken
	case answer.Error.Code == "misdirected":
		hint = unknownName
	case answer.Error.Code == "role_required":
		hint = "give a token with that role in WEIR_ADMIN_TOKEN; the operator's token in --data has the role admin"
	}
	return cli.Fail(errors.New(plaintext.Line(asError(answer.Error.Message), 2000)), hint)
}

// asError writes a sentence of the server's as an error of this program.
func asError(message string) string {
	first, size := utf8.DecodeRuneInString(message)
	if second, _ := utf8.DecodeRuneInString(message[size:]); unicode.IsUpper(first) && unicode.IsLower(second) {
		message = string(unicode.ToLower(first)) + message[size:]
	}
	return strings.TrimSuffix(message, ".")
}

// Decode decodes an answer into v.
func Decode(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return cli.Fail(fmt.Errorf("the server's answer cannot be read: %w", err), "do this program and the server have the same version?")
	}
	return nil
}
