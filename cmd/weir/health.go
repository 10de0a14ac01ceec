package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/plaintext"
)

// healthTimeout bounds the whole question. Docker and Podman ask every few seconds.
const healthTimeout = 3 * time.Second

func newHealth() *cobra.Command {
	listen := cli.ListenOrSocket(":8080")
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a server on this machine whether it is ready",
		Long: `Ask a server on this machine whether it is ready, and exit with status 0 if it is and 1 if not: the health check of
an image without a shell. The server is asked for /readyz within 3 seconds, in cleartext, then by TLS. Its certificate
is not verified: it names the server for clients elsewhere, and no secret is sent.`,
		Example: "  weir health\n  weir health --listen unix:/run/weir/http.sock",
		Args:    cli.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := context.WithTimeout(cmd.Context(), healthTimeout)
			defer stop()
			answer, err := askReady(ctx, string(listen))
			if err != nil {
				return cli.Fail(err, "--listen is the address that the server's own --listen has")
			}
			fmt.Fprint(cmd.OutOrStdout(), answer)
			return nil
		},
	}
	cmd.Flags().Var(&listen, "listen", "the address that the server listens on, [HOST]:PORT or unix:/PATH")
	return cmd
}

// askReady returns the text of a ready server's answer.
func askReady(ctx context.Context, listen string) (string, error) {
	network, address := "tcp", listen
	if path, ok := strings.CutPrefix(listen, "unix:"); ok {
		network, address = "unix", path
	} else if host, port, err := net.SplitHostPort(listen); err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		address = net.JoinHostPort("localhost", port)
	}
	client := &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, address)
			},
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the server is this machine's
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	text, err := readyz(ctx, client, "http")
	if errors.As(err, new(notReady)) || err == nil {
		return text, err
	}
	if text, secure := readyz(ctx, client, "https"); secure == nil || errors.As(secure, new(notReady)) {
		return text, secure
	}
	return "", fmt.Errorf("ask %s for /readyz: %w", listen, err)
}

// notReady is the answer of a server that says so.
type notReady struct{ text string }

func (n notReady) Error() string { return n.text }

func readyz(ctx context.Context, client *http.Client, scheme string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://localhost/readyz", nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	switch {
	case err != nil:
		return "", err
	case answer.StatusCode == http.StatusServiceUnavailable:
		return "", notReady{plaintext.Line(strings.TrimSpace(string(text)), 1000)}
	case answer.StatusCode != http.StatusOK:
		return "", fmt.Errorf("the answer is %d, expected 200", answer.StatusCode)
	}
	return string(text), nil
}
