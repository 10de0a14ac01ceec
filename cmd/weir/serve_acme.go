package main

import (
	"errors"
	"fmt"
	"net/mail"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
)

// serveACME are the flags of weir serve about certificates by ACME, and about the redirect to
// https.
type serveACME struct {
	names        certificateNames
	agree        cli.OnOff
	email        email
	directory    cli.Endpoint
	ca           string
	dir          string
	eabID        string
	eabKey       string
	redirect     cli.OffOrListenAddr
	redirectPort cli.Number
}

func defaultServeACME() serveACME { return serveACME{redirectPort: cli.Number{Max: 65535}} }

func (a *serveACME) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&a.names, "acme", "host names whose certificates are obtained and renewed by ACME, from Let's Encrypt or --acme-directory; switches on TLS as --tls-cert does, and may be given beside it; the authority must reach --listen at port 443 of each name, or --redirect at port 80")
	cli.SwitchFlag(cmd, &a.agree, "acme-agree", "agree to the terms of service of that authority; --acme needs it")
	flags.Var(&a.email, "acme-email", "the address at which the authority can report problems (default none)")
	flags.Var(&a.directory, "acme-directory", "the directory of another authority, an https URL (default Let's Encrypt)")
	flags.StringVar(&a.ca, "acme-ca", "", "`FILE` with the certificates that the authority's own server is verified by, in PEM, for a private one (default those of the system)")
	flags.StringVar(&a.dir, "acme-dir", "", "`DIR` for the certificates by ACME, their keys and the account's; servers that share one obtain each certificate once (default acme in --data)")
	flags.StringVar(&a.eabID, "acme-eab-id", "", "the `ID` of the external account that some authorities bind accounts to")
	flags.StringVar(&a.eabKey, "acme-eab-key", "", "`FILE` with the key of that account, in base64url as the authority has given it out")
	flags.Var(&a.redirect, "redirect", "the address of a listener in clear text, such as :80, that redirects every request to https (308) and answers the authority of --acme; empty or off: none")
	flags.Var(&a.redirectPort, "redirect-port", "the port of the https URLs that --redirect sends clients to, if it is another from outside, such as 443 for a container; 0: that of --listen")
	for _, name := range []string{"acme-ca", "acme-eab-key"} {
		cli.Must(cmd.MarkFlagFilename(name))
	}
	cli.Must(cmd.MarkFlagDirname("acme-dir"))
	cli.Must(cmd.RegisterFlagCompletionFunc("acme-agree", cobra.FixedCompletions([]string{"on", "off"}, cobra.ShellCompDirectiveNoFileComp)))
}

// settings returns what the flags describe.
func (a *serveACME) settings() edge.ACME {
	return edge.ACME{
		Names: a.names, Email: string(a.email), Directory: a.directory.URL, CAFile: a.ca, Dir: a.dir,
		BindingID: a.eabID, BindingKeyFile: a.eabKey,
	}
}

// checkACME rejects flags about ACME that do not fit together.
func (f *serveFlags) checkACME(cmd *cobra.Command) error {
	a := &f.acme
	if len(a.names) == 0 {
		for _, name := range []string{"acme-agree", "acme-email", "acme-directory", "acme-ca", "acme-dir", "acme-eab-id", "acme-eab-key"} {
			if cmd.Flags().Changed(name) && (name != "acme-agree" || bool(a.agree)) {
				return cli.UsageError("give --acme with the names that get certificates, such as --acme api.example.com", "%s has no effect without --acme", cli.GivenAs(cmd, name))
			}
		}
		return nil
	}
	switch {
	case !bool(a.agree):
		return cli.UsageError("read them (of Let's Encrypt: https://letsencrypt.org/repository/), then give --acme-agree",
			"%s needs your agreement to the authority's terms of service", cli.GivenAs(cmd, "acme"))
	case a.directory.URL != nil && a.directory.Scheme != "https":
		return cli.UsageError("give a URL that begins with https://; --acme-ca FILE trusts a private authority",
			"%s %s: an authority is asked over https alone (RFC 8555, section 6.1)", cli.GivenAs(cmd, "acme-directory"), a.directory.Redacted())
	case (a.eabID == "") != (a.eabKey == ""):
		return cli.UsageError("give both or neither", "--acme-eab-id and --acme-eab-key go together%s", cli.GivenIn(cmd, "acme-eab-id", "acme-eab-key"))
	case strings.HasPrefix(string(f.listen), "unix:"):
		return cli.UsageError("give --listen a port, or leave out --acme", "%s needs a TCP listener, which --listen %s is not: the authority connects to it", cli.GivenAs(cmd, "acme"), f.listen)
	}
	return nil
}

// checkRedirect rejects a redirect to https without https.
func (f *serveFlags) checkRedirect(cmd *cobra.Command) error {
	if f.acme.redirect != "" && !f.secure() {
		return cli.UsageError("give --tls-cert and --tls-key, or --acme, or leave it out", "%s leads to https, and --listen has no certificate", cli.GivenAs(cmd, "redirect"))
	}
	return nil
}

// secure reports whether the listeners have TLS.
func (f *serveFlags) secure() bool { return len(f.tlsCert) > 0 || len(f.acme.names) > 0 }

// certificateNames are host names that certificates are obtained for.
type certificateNames []string

func (n *certificateNames) Set(value string) error {
	var all []string
	for _, name := range strings.Split(value, ",") {
		name = strings.TrimSpace(name)
		host, ok := weir.AppendHost(nil, name)
		_, err := netip.ParseAddr(string(host))
		switch {
		case strings.HasPrefix(name, "*."):
			return fmt.Errorf("%q: a certificate for all names under one needs access to their DNS, which Weir does not have: name each host, or give --tls-cert", name)
		case !ok || err == nil || strings.ContainsAny(name, ":[]_"):
			return fmt.Errorf("%q is not a host name; expected a list such as api.example.com,www.example.com, without ports and addresses", name)
		}
		if !slices.Contains(all, string(host)) {
			all = append(all, string(host))
		}
	}
	*n = all
	return nil
}

func (n *certificateNames) String() string  { return strings.Join(*n, ",") }
func (n *certificateNames) Type() string    { return "NAME,..." }
func (n *certificateNames) Items() []string { return *n }
func (n *certificateNames) Adds() bool      { return false }

// An email is the address of a mailbox; empty: none.
type email string

func (e *email) Set(value string) error {
	at, err := mail.ParseAddress(value)
	if err != nil || at.Address != value {
		return errors.New("expected an address such as ops@example.com")
	}
	*e = email(value)
	return nil
}

func (e *email) String() string { return string(*e) }
func (e *email) Type() string   { return "EMAIL" }
