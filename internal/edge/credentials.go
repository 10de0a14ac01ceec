package edge

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/identity/jwks"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/sample"
)

// The start-up lines of an upstream's credentials (D17).
const (
	unverified = "not verified: requests are counted by IP address and passed on; %s"
	verified   = "; without one, a request that a limiter counts by it is counted by IP address and answered 401"
)

// openSessions returns the verifier of sessions that another service issues, and its start-up line.
// It returns nil if no key is configured.
func openSessions(ctx context.Context, c *Config, own *parts) (*identity.Sessions, string, error) {
	s := &c.Sessions
	if len(s.KeyFiles) == 0 && s.JWKS == nil {
		return nil, fmt.Sprintf(unverified, "--jwt-key or --jwks gives the key"), nil
	}
	o := identity.SessionsOptions{Issuer: s.Issuer, Audience: s.Audience, Leeway: s.Leeway}
	var by []string
	for _, path := range s.KeyFiles {
		key, err := identity.LoadKey(path)
		if err != nil {
			return nil, "", cli.Fail(fmt.Errorf("read the key of --jwt-key %q: %w", path, err), fileHint(err, "it holds either a secret of 32 bytes or more, or a public key in PEM"))
		}
		o.Keys = append(o.Keys, key)
		by = append(by, filepath.Base(path))
	}
	if s.JWKS != nil {
		set, err := openKeySet(ctx, c, own)
		if err != nil {
			return nil, "", err
		}
		o.Lookup = set.Lookup
		by = append(by, s.JWKS.String())
	}
	sessions, err := identity.NewSessions(o)
	if err != nil {
		return nil, "", cli.Fail(fmt.Errorf("verify sessions: %w", err), "")
	}
	return sessions, "verified by " + strings.Join(by, ", ") + verified, nil
}

// openKeySet fetches the keys of --jwks, from now on.
func openKeySet(ctx context.Context, c *Config, own *parts) (*jwks.Set, error) {
	url := c.Sessions.JWKS.String()
	fetching, stop := context.WithCancel(ctx)
	set, err := jwks.New(fetching, url, jwks.Options{Report: func(err error) {
		if err != nil {
			c.Log.Error("the sessions' keys cannot be fetched, the last good ones stay in force", "url", url, "error", err)
			return
		}
		c.Log.Info("the sessions' keys are fetched again", "url", url)
	}})
	if err != nil {
		stop()
		return nil, cli.Fail(fmt.Errorf("fetch the keys of --jwks %s: %w", url, err), "expected an https URL, or http to this machine itself")
	}
	own.own(func() error { stop(); set.Wait(); return nil })
	return set, nil
}

// openTokens returns the verifier of an upstream's API tokens, and its start-up line. It returns
// nil if there is no token: it would reject everything that this backend's callers send.
func openTokens(ctx context.Context, c *Config, own *parts) (identity.Tokens, string, error) {
	if c.TokenFile != "" {
		tokens, err := identity.OpenTokenFile(c.TokenFile, func(err error) {
			c.Log.Error("the changed token file cannot be read, its last good tokens stay in force", "file", c.TokenFile, "error", err)
		})
		if err != nil {
			return nil, "", cli.Fail(fmt.Errorf("read the tokens of --token-file %q: %w", c.TokenFile, err),
				fileHint(err, "a line for each token: its id, the SHA-256 of the whole token in hex, and optionally its workspace"))
		}
		return tokens, fmt.Sprintf("verified by %s, %s", filepath.Base(c.TokenFile), cli.Count(tokens.Len(), "token")) + verified, nil
	}
	tokens, err := sample.OpenTokens(ctx, sample.Options{Dir: c.Data, Now: c.Now, Log: c.Log})
	if err != nil {
		return nil, "", cli.Fail(fmt.Errorf("open the tokens in %q: %w", c.Data, err), DataHint)
	}
	own.own(tokens.Close)
	all, err := tokens.List(ctx)
	if err != nil {
		return nil, "", cli.Fail(fmt.Errorf("list the tokens in %q: %w", c.Data, err), "")
	}
	if len(all) == 0 {
		return nil, fmt.Sprintf(unverified, "--token-file, or 'weir token create' before the start, gives some"), nil
	}
	return tokens, fmt.Sprintf("verified by those of 'weir token create', in %s", absolute(c.Data)) + verified, nil
}
