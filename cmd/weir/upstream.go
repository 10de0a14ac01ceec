package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/identity/jwks"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/sample"
)

// An upstreams value is a backend's URLs: one, or several that differ in host and port alone. Its flag is repeatable.
type upstreams []*url.URL

// Set adds the URLs of a comma-separated list.
func (u *upstreams) Set(value string) error {
	all := slices.Clone(*u)
	for _, element := range strings.Split(value, ",") {
		var one cli.Endpoint
		if err := one.Set(strings.TrimSpace(element)); err != nil {
			return err
		}
		for i, other := range all {
			switch {
			case one.Scheme != other.Scheme:
				return fmt.Errorf("%s and %s: the addresses of one backend are all http or all https", other.Host, one.Host)
			case basePath(one.URL) != basePath(other):
				return fmt.Errorf("base paths %q of %s and %q of %s: want the same for all addresses of one backend", basePath(other), other.Host, basePath(one.URL), one.Host)
			case whereTo(one.URL) == whereTo(other):
				return fmt.Errorf("%s is there twice (addresses %d and %d): want each once", one.Host, i+1, len(all)+1)
			}
		}
		all = append(all, one.URL)
	}
	*u = all
	return nil
}

// whereTo returns the host and port that a URL leads to.
func whereTo(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

func basePath(u *url.URL) string { return strings.TrimSuffix(u.EscapedPath(), "/") }

func (u *upstreams) String() string {
	all := make([]string, len(*u))
	for i, one := range *u {
		all[i] = one.String()
	}
	return strings.Join(all, ",")
}

func (u *upstreams) Type() string { return "URL,..." }

// openUpstream puts the operator's backend behind the edge, with what its callers' credentials are verified by (D17).
func (e *edge) openUpstream(ctx context.Context, f *serveFlags, log *slog.Logger, now func() time.Time, who *identity.Options, o *gateway.Options) error {
	o.Upstream, o.MoreUpstreams, o.Avoid = f.upstream[0], f.upstream[1:], f.avoid
	o.Credentials = map[string]string{
		identity.Session: "Begin a session with the service behind this address; send its token as Authorization: Bearer <token>.",
		identity.Token:   "Whoever runs this service hands them out; send yours as Authorization: Bearer <token>.",
	}
	e.backendLine = strings.ReplaceAll(f.upstream.String(), ",", ", ")
	if err := e.openSessions(ctx, f, log, who); err != nil {
		return err
	}
	return e.openTokens(ctx, f, log, now, who)
}

// unverified is what start-up says of credentials that cannot be told apart.
const unverified = "not verified: requests are counted by IP address and passed on; %s"

// fileHint returns the hint for a file that could not be read; otherwise is for one that was, and is not as it should be.
func fileHint(err error, otherwise string) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "name a file that is there; a name without a slash at its beginning is looked for in the directory of the command"
	case errors.Is(err, fs.ErrPermission):
		return "let the user that runs this command read the file"
	}
	return otherwise
}

// refusing is what start-up says of the others.
const refusing = "; without one, a request that a limiter counts by it is counted by IP address and answered 401"

func (e *edge) openSessions(ctx context.Context, f *serveFlags, log *slog.Logger, who *identity.Options) error {
	if len(f.jwtKeys) == 0 && f.jwks.URL == nil {
		e.sessionsLine = fmt.Sprintf(unverified, "--jwt-key or --jwks gives the key")
		return nil
	}
	o := identity.SessionsOptions{Issuer: f.jwtIssuer, Audience: f.jwtAudience, Leeway: f.jwtLeeway.Duration}
	var by []string
	for _, path := range f.jwtKeys {
		key, err := identity.LoadKey(path)
		if err != nil {
			return cli.Fail(fmt.Errorf("read the key of --jwt-key %q: %w", path, err), fileHint(err, "it holds either a secret of 32 bytes or more, or a public key in PEM"))
		}
		o.Keys = append(o.Keys, key)
		by = append(by, filepath.Base(path))
	}
	if f.jwks.URL != nil {
		fetching, stop := context.WithCancel(ctx)
		set, err := jwks.New(fetching, f.jwks.String(), jwks.Options{Report: func(err error) {
			if err != nil {
				log.Error("the sessions' keys cannot be fetched, the last good ones stay in force", "url", f.jwks.String(), "error", err)
				return
			}
			log.Info("the sessions' keys are fetched again", "url", f.jwks.String())
		}})
		if err != nil {
			stop()
			return cli.Fail(fmt.Errorf("fetch the keys of --jwks %s: %w", f.jwks.String(), err), "want an https URL, or http to this machine itself")
		}
		e.closers = append(e.closers, func() error { stop(); set.Wait(); return nil })
		o.Lookup = set.Lookup
		by = append(by, f.jwks.String())
	}
	sessions, err := identity.NewSessions(o)
	if err != nil {
		return cli.Fail(fmt.Errorf("verify sessions: %w", err), "")
	}
	who.Sessions = sessions
	e.sessionsLine = "verified by " + strings.Join(by, ", ") + refusing
	return nil
}

func (e *edge) openTokens(ctx context.Context, f *serveFlags, log *slog.Logger, now func() time.Time, who *identity.Options) error {
	if f.tokenFile != "" {
		tokens, err := identity.OpenTokenFile(f.tokenFile, func(err error) {
			log.Error("the changed token file cannot be read, its last good tokens stay in force", "file", f.tokenFile, "error", err)
		})
		if err != nil {
			return cli.Fail(fmt.Errorf("read the tokens of --token-file %q: %w", f.tokenFile, err),
				fileHint(err, "a line for each token: its id, the SHA-256 of the whole token in hex, and optionally its workspace"))
		}
		who.Tokens = tokens
		e.tokensLine = fmt.Sprintf("verified by %s, %s", filepath.Base(f.tokenFile), cli.Count(tokens.Len(), "token")) + refusing
		return nil
	}
	// The tokens in the data directory are ours only if there are any: else whatever this backend's callers send would be
	// refused.
	tokens, err := sample.OpenTokens(ctx, sample.Options{Dir: f.data, Now: now, Log: log})
	if err != nil {
		return cli.Fail(fmt.Errorf("open the tokens in %q: %w", f.data, err), dataHint)
	}
	e.closers = append(e.closers, tokens.Close)
	all, err := tokens.List(ctx)
	if err != nil {
		return cli.Fail(fmt.Errorf("list the tokens in %q: %w", f.data, err), "")
	}
	if len(all) == 0 {
		e.tokensLine = fmt.Sprintf(unverified, "--token-file, or 'weir token create' before the start, gives some")
		return nil
	}
	who.Tokens = tokens
	e.tokensLine = fmt.Sprintf("verified by those of 'weir token create', in %s", absolute(f.data)) + refusing
	return nil
}
