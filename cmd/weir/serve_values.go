package main

import (
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

func (n *names) String() string { return strings.Join(*n, ",") }
func (n *names) Type() string   { return "NAME,..." }

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

// Set adds the URLs of a comma-separated list. HOST= before one begins those of a host.
func (u *upstreams) Set(value string) error {
	all := slices.Clone(*u)
	host := ""
	for _, element := range strings.Split(value, ",") {
		element = strings.TrimSpace(element)
		if name, rest, ok := cutSite(element); ok {
			route, err := policyfile.ParseRoute(name + "/*")
			if err != nil || route.Host == "" {
				return fmt.Errorf("host %q of %q: expected a name such as api.example.com or *.example.com, without a port", name, element)
			}
			host, element = route.Host, rest
		}
		var one cli.Endpoint
		if err := one.Set(element); err != nil {
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
				return fmt.Errorf("%s and %s: the addresses of one backend are all http or all https", other.Host, one.Host)
			case basePath(one.URL) != basePath(other):
				return fmt.Errorf("base paths %q of %s and %q of %s: expected the same path for all addresses of one backend", basePath(other), other.Host, basePath(one.URL), one.Host)
			case edge.HostPort(one.URL) == edge.HostPort(other):
				return fmt.Errorf("%s is given twice (addresses %d and %d): give each address once", one.Host, i+1, len(of.Upstreams)+1)
			}
		}
		of.Upstreams = append(slices.Clip(of.Upstreams), one.URL)
	}
	*u = all
	return nil
}

// cutSite cuts HOST= before a URL.
func cutSite(element string) (host, rest string, ok bool) {
	host, rest, ok = strings.Cut(element, "=")
	return host, rest, ok && !strings.ContainsAny(host, "/?")
}

func basePath(u *url.URL) string { return strings.TrimSuffix(u.EscapedPath(), "/") }

func (u *upstreams) String() string {
	var all []string
	for _, s := range *u {
		for i, one := range s.Upstreams {
			text := one.String()
			if i == 0 && s.Host != "" {
				text = s.Host + "=" + text
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, ",")
}

func (u *upstreams) Type() string { return "[HOST=]URL,..." }

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

func (m *methods) String() string { return strings.Join(*m, ",") }
func (m *methods) Type() string   { return "METHOD,..." }

// forwarded are the fields by which an upstream learns who is calling.
type forwarded []string

func (f *forwarded) Set(value string) error {
	var all []string
	for _, name := range strings.Split(value, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if !slices.Contains(gateway.ForwardingNames(), name) {
			return fmt.Errorf("%q: expected a list of %s", name, strings.Join(gateway.ForwardingNames(), ", "))
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	*f = all
	return nil
}

func (f *forwarded) String() string { return strings.Join(*f, ",") }
func (f *forwarded) Type() string   { return "FIELD,..." }
