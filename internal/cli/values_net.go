package cli

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// CheckSocket returns what is wrong with the path of a Unix socket.
func CheckSocket(path string) error {
	switch {
	case !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/"):
		return fmt.Errorf("%q for a Unix socket: expected a path from the root, such as unix:/run/app.sock", path)
	case len(path) > maxSocket:
		return fmt.Errorf("the path of a Unix socket has at most %d bytes, and this has %d", maxSocket, len(path))
	case !utf8.ValidString(path) || strings.ContainsRune(path, 0): // it becomes a label of metrics
		return fmt.Errorf("%q for a Unix socket: expected a path in UTF-8", path)
	}
	return nil
}

// maxSocket is the length of the longest path of a Unix socket that all systems take.
const maxSocket = 103

// A ListenAddr is an address to listen on: a host, which may be empty, and a port.
type ListenAddr string

func (a *ListenAddr) Set(value string) error {
	host, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || strings.ContainsAny(host, " /@?#") {
		return errors.New("expected [HOST]:PORT, such as :8080, 127.0.0.1:8080 or [::1]:0 (0: any free port)")
	}
	*a = ListenAddr(value)
	return nil
}

func (a *ListenAddr) String() string { return string(*a) }
func (a *ListenAddr) Type() string   { return "[HOST]:PORT" }

// A ListenOrSocket is a ListenAddr, or unix: and the path of a Unix socket.
type ListenOrSocket string

func (a *ListenOrSocket) Set(value string) error {
	if path, ok := strings.CutPrefix(value, "unix:"); ok {
		if err := CheckSocket(path); err != nil {
			return err
		}
	} else if err := new(ListenAddr).Set(value); err != nil {
		return fmt.Errorf("%w, or unix:/PATH", err)
	}
	*a = ListenOrSocket(value)
	return nil
}

func (a *ListenOrSocket) String() string { return string(*a) }
func (a *ListenOrSocket) Type() string   { return "ADDRESS" }

// An OffOrListenAddr is a ListenAddr that may be empty, which means that there is no listener.
type OffOrListenAddr string

func (a *OffOrListenAddr) Set(value string) error {
	if value == "" || value == "off" {
		*a = ""
		return nil
	}
	var l ListenAddr
	if err := l.Set(value); err != nil {
		return fmt.Errorf("%w; empty or off means none", err)
	}
	*a = OffOrListenAddr(l)
	return nil
}

func (a *OffOrListenAddr) String() string { return string(*a) }
func (a *OffOrListenAddr) Type() string   { return "[HOST]:PORT" }

// An AdminAddr is the address of the admin listener: HOST:PORT, for the server and for the commands
// that talk to it. The commands also accept a URL. The zero value means that there is no listener.
type AdminAddr struct {
	Scheme string // "http" or "https"; empty if the text was no URL
	At     string // HOST:PORT
}

// DefaultAdmin is the default address of the admin listener.
const DefaultAdmin = "127.0.0.1:8081"

func (a *AdminAddr) Set(value string) error {
	if value == "" || value == "off" {
		*a = AdminAddr{}
		return nil
	}
	at := value
	scheme, _, isURL := strings.Cut(value, "://")
	if !isURL {
		scheme = ""
	} else {
		u, err := url.Parse(value)
		if err != nil || scheme != "http" && scheme != "https" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.Hostname() == "" {
			return errAdminAddr
		}
		if at = u.Host; u.Port() == "" {
			at = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[scheme])
		}
	}
	var l ListenAddr
	if l.Set(at) != nil {
		return errAdminAddr
	}
	*a = AdminAddr{scheme, at}
	return nil
}

var errAdminAddr = errors.New("expected [HOST]:PORT or http://HOST:PORT, such as 127.0.0.1:8081; empty or off means none")

func (a *AdminAddr) String() string {
	if a.Scheme != "" {
		return a.Scheme + "://" + a.At
	}
	return a.At
}

func (a *AdminAddr) Type() string { return "[HOST]:PORT" }

// A Prefixes value is a list of networks. An address without a length is a network of one.
type Prefixes []netip.Prefix

func (p *Prefixes) Set(value string) error {
	var all []netip.Prefix
	for _, element := range strings.Split(value, ",") {
		element = strings.TrimSpace(element)
		one, err := netip.ParsePrefix(element)
		if addr, addrErr := netip.ParseAddr(element); err != nil && addrErr == nil && addr.Zone() == "" {
			one, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return fmt.Errorf("%q is neither a network nor an address; expected a list such as 10.0.0.0/8,192.0.2.1,2001:db8::/32", element)
		}
		if one != one.Masked() {
			return fmt.Errorf("%q has bits set outside the network; did you mean %v?", element, one.Masked())
		}
		all = append(all, one)
	}
	*p = all
	return nil
}

func (p *Prefixes) Items() []string {
	all := make([]string, len(*p))
	for i, one := range *p {
		all[i] = one.String()
	}
	return all
}

func (p *Prefixes) String() string { return strings.Join(p.Items(), ",") }
func (p *Prefixes) Type() string   { return "CIDR,..." }
func (p *Prefixes) Adds() bool     { return false }

// An Endpoint is the http or https URL of a server.
type Endpoint struct{ *url.URL }

func (e *Endpoint) Set(value string) error {
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return UsageError(schemeHint(value), "expected http://HOST[:PORT][/PATH] or https://…, without user, password or fragment")
	}
	if !utf8.ValidString(u.Host) { // the host becomes a label of metrics and a Host field
		return fmt.Errorf("host %q is not valid UTF-8", u.Host)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("port %s: expected 1 to 65535", port)
		}
	}
	e.URL = u
	return nil
}

// schemeHint returns the URL that a text is probably meant to be if only its scheme is missing.
func schemeHint(value string) string {
	u, err := url.Parse("http://" + value)
	if err != nil || strings.Contains(value, "://") || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return ""
	}
	if u.Port() == "443" {
		u.Scheme = "https"
	}
	return "write it with its scheme: " + u.String()
}

func (e *Endpoint) String() string {
	if e.URL == nil {
		return ""
	}
	return e.URL.String()
}

func (e *Endpoint) Type() string { return "URL" }

// An Origins value is a list of web origins, or * for any.
type Origins []string

func (o *Origins) Set(value string) error {
	var all []string
	for _, element := range strings.Split(value, ",") {
		element = strings.TrimSpace(element)
		u, err := url.Parse(element)
		if element != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != element) {
			return fmt.Errorf("%q is not an origin; expected a list such as https://example.com,http://localhost:3000, or *", element)
		}
		all = append(all, element)
	}
	if len(all) > 1 && slices.Contains(all, "*") {
		return errors.New("* already means any origin; give it alone, or a list without it")
	}
	*o = all
	return nil
}

func (o *Origins) String() string  { return strings.Join(*o, ",") }
func (o *Origins) Type() string    { return "ORIGIN,..." }
func (o *Origins) Items() []string { return *o }
func (o *Origins) Adds() bool      { return false }
