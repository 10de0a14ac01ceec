package rules

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/internal/upstream"
)

// A Site is an upstream, and the hosts whose requests it gets (D33). Make one with NewSite.
type Site struct {
	Host string         // in the form of weir.Route.Host; empty: all that no other site names
	Pool *upstream.Pool // its addresses

	// The base path, which is put before every path, without the slash at its end: decoded, and
	// escaped.
	Base, EscapedBase string

	// Unanswered are its requests that the upstream did not answer, by the status of our answer.
	Unanswered StatusTally

	scheme, host string // of the first address
	own          string // the Host of requests that have none: that of its URL
	outage       outage
}

// NewSite returns the site of a host. first is the URL of the pool's first address.
func NewSite(host string, first *url.URL, pool *upstream.Pool) (*Site, error) {
	at := upstream.AddressOf(first)
	if upstream.IsSocket(first) {
		return &Site{Host: host, Pool: pool, scheme: "http", host: at.Host, own: "localhost"}, nil
	}
	escaped, decoded, err := decodeBase(first)
	if err != nil {
		return nil, err
	}
	return &Site{
		Host: host, Pool: pool, scheme: first.Scheme, host: at.Host, own: hostOf(first),
		Base: strings.TrimSuffix(decoded, "/"), EscapedBase: strings.TrimSuffix(escaped, "/"),
	}, nil
}

// name returns the site as the log and the metrics have it: AnySite if it has no host.
func (s *Site) name() string { return cmp.Or(s.Host, AnySite) }

// isUp reports whether an address has answered since it last failed.
func (s *Site) isUp() bool {
	return slices.ContainsFunc(s.Pool.States(), func(a upstream.State) bool { return a.Well })
}

// CheckBase returns why the base path of an upstream has no canonical form; nil if it has one.
func CheckBase(u *url.URL) error {
	if upstream.IsSocket(u) {
		return nil
	}
	_, _, err := decodeBase(u)
	return err
}

func decodeBase(u *url.URL) (escaped, decoded string, err error) {
	if escaped, decoded, err = target.Decode(u.EscapedPath()); err != nil {
		return "", "", fmt.Errorf("upstream %q: %w", u.Redacted(), err)
	}
	return escaped, decoded, nil
}

// AllUnanswered returns the count for each status that Unanswered may have.
func (s *Site) AllUnanswered() map[int]int64 {
	return s.Unanswered.all(upstreamUnavailable.Status, upstreamTimeout.Status)
}

// URL returns the URL that the upstream is asked for. of has its canonical form; its query is left
// out.
func (s *Site) URL(of *url.URL) url.URL {
	u := url.URL{Scheme: s.scheme, Host: s.host, Path: s.Base + of.Path, ForceQuery: of.ForceQuery}
	if of.RawPath != "" || s.EscapedBase != s.Base {
		u.RawPath = s.EscapedBase + of.EscapedPath()
	}
	return u
}

// hostOf returns the Host by which an upstream is asked for itself: its host and, if the URL has
// one, its port. A zone is this machine's own name for a link (RFC 6874, section 1), and left out.
func hostOf(u *url.URL) string {
	zone, end := strings.IndexByte(u.Host, '%'), strings.IndexByte(u.Host, ']')
	if zone < 0 || end < zone {
		return u.Host
	}
	return u.Host[:zone] + u.Host[end:]
}

// addSites makes sites findable by host.
func (r *Rules) addSites(all []*Site) error {
	seen := make(map[string]bool, len(all))
	for _, s := range all {
		if seen[s.Host] {
			return fmt.Errorf("new gateway: two upstreams are for host %q: name each host once, with all its addresses", s.Host)
		}
		seen[s.Host] = true
		r.sites.Set(s.Host, s)
	}
	return nil
}

// siteOf returns the site of a request; nil if no upstream serves its host, or if the backend is a
// handler.
func (r *Rules) siteOf(host string) *Site {
	if found := r.sites.Get(host); found != nil {
		return *found
	}
	return nil
}

// IsServed reports whether requests for a host have a backend. The host may have a port.
func (r *Rules) IsServed(host string) bool { return len(r.Sites) == 0 || r.siteOf(host) != nil }

// IsForeign reports whether a request for a host came on a TLS connection that was made for
// another: its client asked for that one's name (SNI). A trusted proxy may send requests for all
// hosts on one connection.
func (r *Rules) IsForeign(peer netip.Addr, asked, host string) bool {
	return r.Covers != nil && !r.Covers(asked, host) && !r.Trusts(peer)
}

// Misdirected answers a request for a host that no upstream serves, or that the certificate of its
// connection does not cover (RFC 9110, section 15.5.20).
var Misdirected = Answer{Status: http.StatusMisdirectedRequest, Code: "misdirected_request",
	Message: "No service with this host name is served on this connection. Check the address, or the Host field."}
