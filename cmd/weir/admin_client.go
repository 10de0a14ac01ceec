package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/plaintext"
)

// An operatorFlags value says which server a command talks to, and with which token.
type operatorFlags struct {
	admin cli.AdminAddr
	token string
	data  string
	json  cli.OnOff
}

func (f *operatorFlags) register(cmd *cobra.Command) {
	f.admin = cli.AdminAddr{At: cli.DefaultAdmin}
	cmd.Flags().Var(&f.admin, "admin", "where the server answers operators; also a URL")
	cmd.Flags().StringVar(&f.token, "admin-token", "", "`TOKEN` to show it (default the operator's, in --data); in the variable it is kept out of ps")
	dataFlag(cmd, &f.data)
	cli.JSONFlag(cmd, &f.json)
}

// operatorTime bounds one question to a server.
const operatorTime = 15 * time.Second

// mostAnswer bounds what is read of its answer.
const mostAnswer = 8 << 20

// base returns where the server is, as this machine reaches it.
func (f *operatorFlags) base() (string, error) {
	host, port, _ := net.SplitHostPort(f.admin.At)
	if f.admin.At == "" || strings.Trim(port, "0") == "" {
		return "", cli.UsageError("say with --admin HOST:PORT where the server answers operators; its start says so in the line admin", "--admin %q is no address to ask", f.admin.String())
	}
	if addr, err := netip.ParseAddr(host); host == "" || err == nil && addr.IsUnspecified() {
		host = "127.0.0.1"
	}
	return cmp.Or(f.admin.Scheme, "http") + "://" + net.JoinHostPort(host, port), nil
}

// secret returns the token to show.
func (f *operatorFlags) secret() (string, error) {
	if f.token != "" {
		return f.token, nil
	}
	token, err := admin.ReadOperator(f.data)
	if errors.Is(err, fs.ErrNotExist) {
		return "", cli.Fail(fmt.Errorf("there is no admin token in the data directory %q", f.data),
			"say with --data DIR where 'weir serve' keeps its data, or give a token in WEIR_ADMIN_TOKEN; 'weir admin create NAME' makes one")
	}
	if err != nil {
		return "", cli.Fail(fmt.Errorf("read the admin token: %w", err), "the token is its owner's alone; others get one of their own by 'weir admin create NAME'")
	}
	return token, nil
}

// ask sends a question to the admin listener and returns its answer. send is nil if nothing is changed. The token is sent only on a
// connection whose other end has proved that it knows the token, and never after a redirect.
func (f *operatorFlags) ask(ctx context.Context, path string, send any) ([]byte, error) {
	base, err := f.base()
	if err != nil {
		return nil, err
	}
	token, err := f.secret()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, operatorTime)
	defer cancel()
	client, hangUp := oneConnection()
	defer hangUp()
	if err := prove(ctx, client, base, token); err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return nil, cli.Fail(fmt.Errorf("ask %s: %w", base, err), "")
	}
	if send != nil {
		b, err := json.Marshal(send)
		if err != nil {
			return nil, cli.Fail(err, "")
		}
		r.Method, r.Body, r.ContentLength = http.MethodPost, io.NopCloser(bytes.NewReader(b)), int64(len(b))
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, b, err := exchange(client, r, base)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, answeredNo(base, answer.StatusCode, b)
	}
	return b, nil
}

// errHungUp is the error of a second connection.
var errHungUp = errors.New("it closed the connection after it had proved that it knows the token, and no other connection gets the token")

// oneConnection returns a client that makes one connection, without a proxy, which would see the token, and follows no redirect.
// hangUp closes the connection.
func oneConnection() (client *http.Client, hangUp func()) {
	var made atomic.Bool
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if made.Swap(true) {
				return nil, errHungUp
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, transport.CloseIdleConnections
}

// exchange sends a request and reads the answer whole.
func exchange(client *http.Client, r *http.Request, base string) (*http.Response, []byte, error) {
	answer, err := client.Do(r)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, nil, cli.Fail(fmt.Errorf("ask the server at %s: %w", base, err), unansweredHint(err))
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer))
	if err != nil {
		return nil, nil, cli.Fail(fmt.Errorf("read the answer of the server at %s: %w", base, err), "")
	}
	return answer, b, nil
}

// unansweredHint returns the hint for a question without an answer.
func unansweredHint(err error) string {
	switch {
	case errors.Is(err, errHungUp):
		return "ask the server itself, or through a proxy that keeps connections"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the server speaks clear text: use --admin http://HOST:PORT"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return "name the server as its certificate does; SSL_CERT_FILE=FILE trusts the certificates in FILE"
	}
	return adminHint
}

const adminHint = "is 'weir serve' running, and is --admin what its start says in the line admin?"

// prove asks the server at base to prove that it knows the token, which is not sent. After nil the client's connection may carry it.
func prove(ctx context.Context, client *http.Client, base, token string) error {
	challenge := admin.NewChallenge(token)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+challenge.Path(), nil)
	if err != nil {
		return cli.Fail(fmt.Errorf("ask %s: %w", base, err), "")
	}
	answer, b, err := exchange(client, r, base)
	if err != nil {
		return err
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
		return cli.Fail(fmt.Errorf("the server at %s passes requests on to the admin listener under another name, so no token was sent: %s", base, plaintext.Line(err.Error(), 500)),
			"ask the server itself; a proxy before it must pass Host on as it came, with its port (nginx: proxy_set_header Host $http_host)")
	}
	hint := "--admin is what the start of 'weir serve' says in the line admin, by default 127.0.0.1:8081; the public listener is another port"
	if answer.TLS == nil && answer.StatusCode == http.StatusBadRequest && bytes.Contains(b, []byte("HTTPS")) {
		hint = "the server speaks TLS: use --admin https://HOST:PORT"
	}
	return cli.Fail(fmt.Errorf("the server at %s is not the admin listener of a Weir server that knows this token, so no token was sent: it answers %d",
		base, answer.StatusCode), hint)
}

// unproven is the failure of a challenge that an admin listener refuses. Any server can answer so: nothing that it says is repeated.
func unproven(base string, answer *http.Response) error {
	switch answer.StatusCode {
	case http.StatusUnauthorized:
		return cli.Fail(fmt.Errorf("the admin listener at %s does not know the token, so it was not sent", base), unknownToken)
	case http.StatusMisdirectedRequest:
		return cli.Fail(fmt.Errorf("the admin listener at %s does not answer to that name", base), unknownName)
	case http.StatusTooManyRequests:
		hint := "wait a minute"
		if seconds, err := strconv.ParseUint(answer.Header.Get(headers.RetryAfter), 10, 16); err == nil {
			hint = fmt.Sprintf("wait %d seconds; a right token is answered at once", seconds)
		}
		return cli.Fail(fmt.Errorf("the admin listener at %s does not know the token, and had too many wrong ones from this address", base), hint)
	}
	return cli.Fail(fmt.Errorf("the admin listener at %s answers %d, so no token was sent", base, answer.StatusCode), "the log of that server says why")
}

const (
	unknownToken = "the token is that of another server, or was revoked; --data DIR has the operator's, 'weir admin create NAME' makes others"
	unknownName  = "use the address that the server listens on, or start it with --admin-hosts and this name"
)

// answeredNo is the failure of a question that was answered with an error. What the server says may repeat what callers chose.
func answeredNo(base string, status int, body []byte) error {
	var said struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(body, &said) != nil || said.Error.Message == "" {
		return cli.Fail(fmt.Errorf("the server at %s answers %d, and not as the admin listener of 'weir serve' does", base, status), adminHint)
	}
	hint := ""
	switch {
	case status == http.StatusUnauthorized:
		hint = unknownToken
	case said.Error.Code == "misdirected":
		hint = unknownName
	}
	return cli.Fail(errors.New(plaintext.Line(asError(said.Error.Message), 2000)), hint)
}

// asError spells a sentence of the server's as the errors of this program are.
func asError(message string) string {
	first, size := utf8.DecodeRuneInString(message)
	if second, _ := utf8.DecodeRuneInString(message[size:]); unicode.IsUpper(first) && unicode.IsLower(second) {
		message = string(unicode.ToLower(first)) + message[size:]
	}
	return strings.TrimSuffix(message, ".")
}

// printAnswer prints an answer as JSON, indented.
func printAnswer(cmd *cobra.Command, b []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(b), "", "  "); err != nil {
		return cli.Fail(fmt.Errorf("the server's answer is no JSON: %w", err), "")
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), out.String())
	return err
}

// readAnswer reads an answer into v.
func readAnswer(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return cli.Fail(fmt.Errorf("the server's answer cannot be read: %w", err), "are this program and the server of the same version?")
	}
	return nil
}

// clockTime is a time for people, in their own zone.
func clockTime(unix int64) string {
	return time.Unix(unix, 0).Local().Format("2006-01-02 15:04:05 MST")
}
