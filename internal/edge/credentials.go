package edge

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/identity/jwks"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/sample"
)

// verified ends the start-up line of credentials that are verified before an upstream (D17, D27).
const verified = "; a request without one is counted by IP address, and rejected if its limiter requires one"

// verifiers are the flags that verify each credential.
var verifiers = map[string]string{
	identity.Session: "--jwt-key or --jwks gives the key",
	identity.Token:   "--tokens verifies those of 'weir token create', --token-file others",
	identity.Cert:    "--client-ca asks callers for certificates",
}

// verifies reports whether a credential is verified, by a flag or by the sample backend.
func (c *Config) verifies(credential string) bool {
	switch hasSample := len(c.Sites) == 0 && !c.asksAlone(); credential {
	case identity.Session:
		return hasSample || len(c.Sessions.KeyFiles) > 0 || c.Sessions.JWKS != nil
	case identity.Token:
		return hasSample || c.TokenFile != "" || c.Tokens
	default:
		return c.asksClients()
	}
}

// credentialWarnings returns a warning for each credential that limiters require and c does not
// verify: they let everybody in.
func credentialWarnings(p weir.Policy, c *Config) (all []Warning) {
	for _, credential := range weir.Credentials() {
		var requiring []string
		for i := range p.Limiters {
			if l := &p.Limiters[i]; l.Requires == credential && !c.verifies(credential) {
				requiring = append(requiring, l.Name)
			}
		}
		if len(requiring) > 0 {
			all = append(all, Warning{"limiters require a credential that is not verified: their requests are counted by IP address and forwarded",
				[]any{"limiters", strings.Join(requiring, ", "), "requires", credential, "flags", verifiers[credential]}})
		}
	}
	return all
}

// unverified returns the start-up line of credentials that nothing verifies; "" if the policy does
// not use them.
func unverified(c *Config, source string) string {
	var requiring, counting, excepted, planned []string
	for i := range c.Policy.Policy.Limiters {
		l := &c.Policy.Policy.Limiters[i]
		switch {
		case l.Requires == source:
			requiring = append(requiring, l.Name)
		case l.CountsBy(source):
			counting = append(counting, l.Name)
		case source == identity.Token && exceptsTokens(l):
			excepted = append(excepted, l.Name)
		}
		if readsPlan(l, source) {
			planned = append(planned, l.Name)
		}
	}
	var although []string
	if len(requiring) > 0 {
		although = append(although, "required by "+strings.Join(requiring, ", "))
	}
	if len(counting) > 0 {
		although = append(although, "part of a key in "+strings.Join(counting, ", "))
	}
	if len(excepted) > 0 {
		although = append(although, "named in "+strings.Join(excepted, ", "))
	}
	if len(although)+len(planned) == 0 {
		return ""
	}
	line := "not verified: requests are counted by IP address and forwarded"
	if len(although) > 0 {
		line += ", although " + strings.Join(although, ", and ")
	}
	if len(planned) > 0 {
		line += ", so nobody has a plan of " + strings.Join(planned, ", ")
	}
	return line + "; " + verifiers[source]
}

// exceptsTokens reports whether a limiter exempts, denies or overrides a token by its id.
func exceptsTokens(l *weir.Limiter) bool {
	isToken := func(w weir.Who) bool { return w.Token != "" }
	return slices.ContainsFunc(l.Exempt, isToken) || slices.ContainsFunc(l.Deny, isToken) ||
		slices.ContainsFunc(l.Overrides, func(o weir.Override) bool { return isToken(o.For) })
}

// openSessions returns the verifier of sessions that another service issues, and its start-up line.
// It returns nil if no key is configured.
func openSessions(ctx context.Context, c *Config, h *hooks, own *parts) (*identity.Sessions, string, error) {
	s := &c.Sessions
	if !c.verifies(identity.Session) {
		return nil, unverified(c, identity.Session), nil
	}
	o := identity.SessionsOptions{Issuer: s.Issuer, Audience: s.Audience, Leeway: s.Leeway}
	advice := &sidAdvice{log: c.Log}
	o.Refreshed, o.WithoutSid = advice.refreshed, advice.withoutSid
	h.policies = append(h.policies, advice.policyChanged)
	var by []string
	for _, path := range s.KeyFiles {
		key, err := identity.LoadKey(path)
		if err != nil {
			return nil, "", cli.Fail(fmt.Errorf("--jwt-key: %w", err), fileHint(err, "it holds either a secret of 32 bytes or more, or a public key in PEM"))
		}
		o.Keys = append(o.Keys, key)
		by = append(by, "--jwt-key "+filepath.Base(path))
	}
	if s.JWKS != nil {
		set, err := openKeySet(ctx, c, own)
		if err != nil {
			return nil, "", err
		}
		o.Lookup = set.Lookup
		by = append(by, "--jwks "+s.JWKS.Redacted())
	}
	sessions, err := identity.NewSessions(o)
	if err != nil {
		return nil, "", cli.Fail(fmt.Errorf("verify sessions: %w", err), "")
	}
	return sessions, "verified by " + strings.Join(by, ", ") + verified, nil
}

// CheckKeySet returns the failure of a URL that no keys are fetched from; nil if they are. It
// connects nowhere.
func CheckKeySet(u *url.URL) error {
	if err := jwks.CheckURL(u); err != nil {
		return cli.Fail(fmt.Errorf("fetch the keys of --jwks %s: %w", u.Redacted(), err), "expected an https URL, or http to this machine itself")
	}
	return nil
}

// openKeySet fetches the keys of --jwks, from now on.
func openKeySet(ctx context.Context, c *Config, own *parts) (*jwks.Set, error) {
	from := c.Sessions.JWKS.String()
	if err := CheckKeySet(c.Sessions.JWKS); err != nil {
		return nil, err
	}
	fetching, stop := context.WithCancel(ctx)
	set, err := jwks.New(fetching, from, jwks.Options{Report: func(err error) {
		if err != nil {
			c.Log.Error("cannot fetch the sessions' keys; the last valid keys stay in force", "url", from, "error", err)
			return
		}
		c.Log.Info("the sessions' keys can be fetched again", "url", from)
	}})
	if err != nil {
		stop()
		return nil, cli.Fail(fmt.Errorf("fetch the keys of --jwks %s: %w", from, err), "")
	}
	own.own(func() error { stop(); set.Wait(); return nil })
	return set, nil
}

// certificateRows returns the start-up row of client certificates. There is none if no flag asks
// for them and the policy neither counts by them nor requires one.
func certificateRows(c *Config) []Row {
	line := unverified(c, identity.Cert)
	if c.asksClients() {
		line = "certificates from the authorities of --client-ca " + filepath.Base(c.Clients.CAFile)
		if c.Clients.Optional {
			line += verified
		} else {
			line += "; a connection without one is refused"
		}
	}
	if line == "" {
		return nil
	}
	return []Row{{"client TLS", line}}
}

// openTokens returns the verifier of an upstream's API tokens, and its start-up line. It returns
// nil if no flag asks for one.
func openTokens(ctx context.Context, c *Config, h *hooks, own *parts) (identity.Tokens, string, error) {
	if c.TokenFile != "" {
		file, err := openTokenFile(ctx, c, h, own)
		if err != nil {
			return nil, "", err
		}
		return file, file.row() + c.placesRow() + verified, nil
	}
	if !c.Tokens {
		return nil, unverified(c, identity.Token), nil
	}
	tokens, err := sample.OpenTokens(ctx, sample.Options{Dir: c.Data, Now: c.Now, Log: c.Log})
	if err != nil {
		return nil, "", cli.Fail(fmt.Errorf("open the tokens in %q: %w", c.Data, err), DataHint(err))
	}
	own.own(tokens.Close)
	return tokens, fmt.Sprintf("verified by --tokens: those of 'weir token create', in %s", absolute(c.Data)) + c.placesRow() + verified, nil
}
