package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/plaintext"
)

// An operatorFlags value says which server a command talks to, and with which token.
type operatorFlags struct {
	admin adminAddr
	token string
	data  string
	json  onOff
}

func (f *operatorFlags) register(cmd *cobra.Command) {
	f.admin = adminAddr{at: defaultAdmin}
	cmd.Flags().Var(&f.admin, "admin", "where the server answers operators; also a URL")
	cmd.Flags().StringVar(&f.token, "admin-token", "", "`TOKEN` to show it (default the operator's, in --data); in the variable it is kept out of ps")
	dataFlag(cmd, &f.data)
	jsonFlag(cmd, &f.json)
}

// operatorTime bounds one question to a server.
const operatorTime = 15 * time.Second

// mostAnswer bounds what is read of its answer.
const mostAnswer = 8 << 20

// base returns where the server is, as this machine reaches it.
func (f *operatorFlags) base() (string, error) {
	host, port, _ := net.SplitHostPort(f.admin.at)
	if f.admin.at == "" || strings.Trim(port, "0") == "" {
		return "", misused("say with --admin HOST:PORT where the server answers operators; its start says so in the line admin", "--admin %q is no address to ask", f.admin.String())
	}
	if addr, err := netip.ParseAddr(host); host == "" || err == nil && addr.IsUnspecified() {
		host = "127.0.0.1"
	}
	return cmp.Or(f.admin.scheme, "http") + "://" + net.JoinHostPort(host, port), nil
}

// secret returns the token to show.
func (f *operatorFlags) secret() (string, error) {
	if f.token != "" {
		return f.token, nil
	}
	token, err := admin.ReadOperator(f.data)
	if errors.Is(err, fs.ErrNotExist) {
		return "", no(fmt.Errorf("there is no admin token in the data directory %q", f.data),
			"say with --data DIR where 'weir serve' keeps its data, or give a token in WEIR_ADMIN_TOKEN; 'weir admin create NAME' makes one")
	}
	if err != nil {
		return "", no(fmt.Errorf("read the admin token: %w", err), "the token is its owner's alone; others get one of their own by 'weir admin create NAME'")
	}
	return token, nil
}

// ask sends a question to the server and returns its answer. send is nil where nothing is changed.
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
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return nil, no(fmt.Errorf("ask %s: %w", base, err), "")
	}
	if send != nil {
		b, err := json.Marshal(send)
		if err != nil {
			return nil, no(err, "")
		}
		r.Method, r.Body, r.ContentLength = http.MethodPost, io.NopCloser(bytes.NewReader(b)), int64(len(b))
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true}, // and no proxy: it would see the token
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(r)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, no(fmt.Errorf("ask the server at %s: %w", base, err), "is 'weir serve' running, and is --admin what its start says in the line admin?")
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer))
	if err != nil {
		return nil, no(fmt.Errorf("read the answer of the server at %s: %w", base, err), "")
	}
	if answer.StatusCode != http.StatusOK {
		return nil, answeredNo(base, answer.StatusCode, b)
	}
	return b, nil
}

// answeredNo is the failure of a question that was answered with an error. What the server says may repeat what callers chose.
func answeredNo(base string, status int, body []byte) error {
	var said struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(body, &said) != nil || said.Error.Message == "" {
		return no(fmt.Errorf("the server at %s answers %d, and not as the admin listener of 'weir serve' does", base, status), "is --admin what its start says in the line admin?")
	}
	hint := ""
	switch {
	case status == http.StatusUnauthorized:
		hint = "the token is that of another server, or was revoked; --data DIR has the operator's, 'weir admin create NAME' makes others"
	case said.Error.Code == "misdirected":
		hint = "use the address that the server listens on, or start it with --admin-hosts and this name"
	}
	return no(errors.New(plaintext.Line(asError(said.Error.Message), 2000)), hint)
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
		return no(fmt.Errorf("the server's answer is no JSON: %w", err), "")
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), out.String())
	return err
}

// readAnswer reads an answer into v.
func readAnswer(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return no(fmt.Errorf("the server's answer cannot be read: %w", err), "are this program and the server of the same version?")
	}
	return nil
}

// clockTime is a time for people, in their own zone.
func clockTime(unix int64) string {
	return time.Unix(unix, 0).Local().Format("2006-01-02 15:04:05 MST")
}
