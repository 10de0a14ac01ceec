package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
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

// upstreams are a backend's URLs, which differ in host and port only. The flag is repeatable.
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
				return fmt.Errorf("base paths %q of %s and %q of %s: expected the same path for all addresses of one backend", basePath(other), other.Host, basePath(one.URL), one.Host)
			case edge.HostPort(one.URL) == edge.HostPort(other):
				return fmt.Errorf("%s is given twice (addresses %d and %d): give each address once", one.Host, i+1, len(all)+1)
			}
		}
		all = append(all, one.URL)
	}
	*u = all
	return nil
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
