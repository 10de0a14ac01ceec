package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/policyfile"
)

// names is a list of host names.
type names []string

func (n *names) Set(value string) error {
	var all []string
	for _, name := range strings.Split(value, ",") {
		name = strings.TrimSpace(name)
		if name == "" || strings.ContainsAny(name, " /@?#:[]*") {
			return fmt.Errorf("%q is not a host name; expected a list such as weir.example.com,ops-1, without ports", name)
		}
		all = append(all, name)
	}
	*n = all
	return nil
}

func (n *names) String() string  { return strings.Join(*n, ",") }
func (n *names) Type() string    { return "NAME,..." }
func (n *names) Items() []string { return *n }
func (n *names) Adds() bool      { return false }

// oneName is a host name, or an address.
type oneName string

func (n *oneName) Set(value string) error {
	host, ok := weir.AppendHost(nil, value)
	if !ok || strings.ContainsAny(value, ":[]") {
		return errors.New("expected a host name such as backend.example.com, without scheme and port")
	}
	*n = oneName(host)
	return nil
}

func (n *oneName) String() string { return string(*n) }
func (n *oneName) Type() string   { return "NAME" }

// upstreams are the backends by host. The flag is repeatable.
type upstreams []gateway.Site

// Set adds the URLs of a comma-separated list. HOST= before one begins those of a host, and *=
// those of all hosts that no other names. A list that begins without either, after a host has been
// named, is rejected: it may be meant for that host, or for all others.
func (u *upstreams) Set(value string) error {
	all := slices.Clone(*u)
	host := ""
	for i, element := range strings.Split(value, ",") {
		element = strings.TrimSpace(element)
		name, rest, ok := cutSite(element)
		switch {
		case ok:
			var err error
			if host, err = parseSite(name); err != nil {
				return fmt.Errorf("host %q of %q: %w", name, element, err)
			}
			element = rest
		case i == 0 && u.named():
			last := all[len(all)-1].Host
			return cli.UsageError(fmt.Sprintf("write *=%s for all hosts that no other names, or %s=%[1]s", cli.RedactURL(element), cmp.Or(last, "HOST")),
				"%s has no host, and comes after one that has", cli.RedactURL(element))
		}
		var one cli.Endpoint
		if err := setBackend(&one, element); err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(s gateway.Site) bool { return s.Host == host })
		if i < 0 {
			all = append(all, gateway.Site{Host: host})
			i = len(all) - 1
		}
		of := &all[i]
		for i, other := range of.Upstreams {
			switch {
			case one.Scheme != other.Scheme:
				return fmt.Errorf("%s and %s: the addresses of one backend are all http, all https, or all Unix sockets", other.Redacted(), one.URL.Redacted())
			case one.Scheme != "unix" && basePath(one.URL) != basePath(other):
				return fmt.Errorf("base paths %q of %s and %q of %s: expected the same path for all addresses of one backend", basePath(other), other.Host, basePath(one.URL), one.Host)
			case edge.HostPort(one.URL) == edge.HostPort(other):
				return fmt.Errorf("%s is given twice (addresses %d and %d): give each address once", cmp.Or(one.Host, one.Path), i+1, len(of.Upstreams)+1)
			}
		}
		of.Upstreams = append(slices.Clip(of.Upstreams), one.URL)
	}
	*u = all
	return nil
}

// setBackend sets the URL of a backend, or its Unix socket.
func setBackend(to *cli.Endpoint, text string) error {
	path, ok := strings.CutPrefix(text, "unix:")
	if !ok {
		return to.Set(text)
	}
	if strings.HasPrefix(path, "//") {
		path = "/" + strings.TrimLeft(path, "/")
	}
	if err := cli.CheckSocket(path); err != nil {
		return err
	}
	to.URL = &url.URL{Scheme: "unix", Path: path, OmitHost: true}
	return nil
}

// cutSite cuts HOST= before a URL.
func cutSite(element string) (host, rest string, ok bool) {
	host, rest, ok = strings.Cut(element, "=")
	return host, rest, ok && !strings.ContainsAny(host, "/?")
}

// parseSite returns a host as sites are found by it: in one spelling, and empty for anyHost.
func parseSite(name string) (host string, err error) {
	if name == anyHost {
		return "", nil
	}
	if !strings.ContainsAny(name, ".:") {
		name += "." // which a route needs, to be no path
	}
	route, err := policyfile.ParseRoute(name + "/*")
	if err != nil || route.Host == "" || route.Method != "" {
		return "", errors.New("expected a name such as api.example.com or *.example.com, without a port, or * for all other hosts")
	}
	return route.Host, nil
}

func basePath(u *url.URL) string { return strings.TrimSuffix(u.EscapedPath(), "/") }

// Items returns the URLs, each with its host unless all are for every host.
func (u *upstreams) Items() []string {
	var all []string
	for _, s := range *u {
		for _, one := range s.Upstreams {
			text := one.String()
			if u.named() {
				text = cmp.Or(s.Host, anyHost) + "=" + text
			}
			all = append(all, text)
		}
	}
	return all
}

func (u *upstreams) String() string { return strings.Join(u.Items(), ",") }

func (u *upstreams) Type() string { return "[HOST=]URL,..." }
func (u *upstreams) Adds() bool   { return true }

// named reports whether a backend is for one host.
func (u *upstreams) named() bool {
	return slices.ContainsFunc(*u, func(s gateway.Site) bool { return s.Host != "" })
}

// methods are those that are accepted beside the known ones.
type methods []string

func (m *methods) Set(value string) error {
	var all []string
	for _, one := range strings.Split(value, ",") {
		one = strings.TrimSpace(one)
		if err := gateway.CheckMethod(one); err != nil {
			return err
		}
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	*m = all
	return nil
}

func (m *methods) String() string  { return strings.Join(*m, ",") }
func (m *methods) Type() string    { return "METHOD,..." }
func (m *methods) Items() []string { return *m }
func (m *methods) Adds() bool      { return false }

// forwarded are the fields by which an upstream learns who is calling.
type forwarded []string

func (f *forwarded) Set(value string) error {
	if strings.TrimSpace(value) == gateway.NoForwarding {
		*f = forwarded{gateway.NoForwarding}
		return nil
	}
	var all []string
	for _, name := range strings.Split(value, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if !slices.Contains(gateway.ForwardingNames(), name) {
			return fmt.Errorf("%q: expected %s, or a list of %s", name, gateway.NoForwarding, strings.Join(gateway.ForwardingNames(), ", "))
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	*f = all
	return nil
}

func (f *forwarded) String() string  { return strings.Join(*f, ",") }
func (f *forwarded) Type() string    { return "FIELD,..." }
func (f *forwarded) Items() []string { return *f }
func (f *forwarded) Adds() bool      { return false }
