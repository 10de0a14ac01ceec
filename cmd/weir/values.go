package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimit/weir/redisstore"
)

// Flag values: each parses its string once, at the edge, and is then what it says. All implement pflag.Value.

// A size is a number of bytes, written as a whole number with a unit: 512KiB, 256MiB, 2GiB.
type size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

func (s *size) Set(value string) error {
	digits := strings.TrimRight(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	for _, unit := range sizeUnits {
		if value[len(digits):] != unit.name {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || n == 0 || int64(n) > math.MaxInt64/unit.bytes {
			break
		}
		*s = size(int64(n) * unit.bytes)
		return nil
	}
	return errors.New("want a whole number of B, KiB, MiB or GiB, more than zero and with its unit, such as 256MiB")
}

func (s *size) String() string {
	for _, unit := range sizeUnits {
		if *s != 0 && int64(*s)%unit.bytes == 0 {
			return strconv.FormatInt(int64(*s)/unit.bytes, 10) + unit.name
		}
	}
	return "0B"
}

func (s *size) Type() string { return "SIZE" }

// A leastRate is a number of bytes a second; negative: there is no least rate.
type leastRate int64

func (r *leastRate) Set(value string) error {
	if value == "off" {
		*r = -1
		return nil
	}
	var s size
	if err := s.Set(value); err != nil {
		return errors.New("want off, or a whole number of B, KiB, MiB or GiB a second, more than zero, such as 500B")
	}
	*r = leastRate(s)
	return nil
}

func (r *leastRate) String() string {
	if *r < 0 {
		return "off"
	}
	s := size(*r)
	return s.String()
}

func (r *leastRate) Type() string { return "SIZE" }

// A span is a length of time within bounds.
type span struct {
	time.Duration
	min, max time.Duration
}

func (s *span) Set(value string) error {
	d, err := time.ParseDuration(value)
	if err != nil || d < s.min || d > s.max {
		return fmt.Errorf("want a duration from %v to %v, such as 100ms", s.min, s.max)
	}
	s.Duration = d
	return nil
}

func (s *span) Type() string { return "DURATION" }

// An uploadTime is for how long a body is waited for; zero: there is no bound.
type uploadTime time.Duration

func (u *uploadTime) Set(value string) error {
	if value == "off" {
		*u = 0
		return nil
	}
	s := span{min: time.Second, max: 30 * 24 * time.Hour}
	if err := s.Set(value); err != nil {
		return fmt.Errorf("want off, or a duration from %v to %v, such as 10m", s.min, s.max)
	}
	*u = uploadTime(s.Duration)
	return nil
}

func (u *uploadTime) String() string {
	if *u == 0 {
		return "off"
	}
	return time.Duration(*u).String()
}

func (u *uploadTime) Type() string { return "DURATION" }

// A listenAddr is where to listen: a host, which may be empty, and a port.
type listenAddr string

func (a *listenAddr) Set(value string) error {
	host, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || strings.ContainsAny(host, " /@?#") {
		return errors.New("want [HOST]:PORT, such as :8080, 127.0.0.1:8080 or [::1]:0 (0: any free port)")
	}
	*a = listenAddr(value)
	return nil
}

func (a *listenAddr) String() string { return string(*a) }
func (a *listenAddr) Type() string   { return "[HOST]:PORT" }

// A prefixes value is a list of networks; an address alone is a network of one.
type prefixes []netip.Prefix

func (p *prefixes) Set(value string) error {
	var all []netip.Prefix
	for _, element := range strings.Split(value, ",") {
		element = strings.TrimSpace(element)
		one, err := netip.ParsePrefix(element)
		if addr, addrErr := netip.ParseAddr(element); err != nil && addrErr == nil && addr.Zone() == "" {
			one, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return fmt.Errorf("%q is neither a network nor an address; want a list such as 10.0.0.0/8,192.0.2.1,2001:db8::/32", element)
		}
		if one != one.Masked() {
			return fmt.Errorf("%q has bits set outside the network; did you mean %v?", element, one.Masked())
		}
		all = append(all, one)
	}
	*p = all
	return nil
}

func (p *prefixes) String() string {
	all := make([]string, len(*p))
	for i, one := range *p {
		all[i] = one.String()
	}
	return strings.Join(all, ",")
}

func (p *prefixes) Type() string { return "CIDR,..." }

// An endpoint is the http or https URL of a server.
type endpoint struct{ *url.URL }

func (e *endpoint) Set(value string) error {
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return errors.New("want http://HOST[:PORT][/PATH] or https://…, without user, password or fragment")
	}
	if !utf8.ValidString(u.Host) { // it would be a label of metrics, and a Host
		return fmt.Errorf("host %q is no text", u.Host)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("port %s is none: want 1 to 65535", port)
		}
	}
	e.URL = u
	return nil
}

func (e *endpoint) String() string {
	if e.URL == nil {
		return ""
	}
	return e.URL.String()
}

func (e *endpoint) Type() string { return "URL" }

// A choice is one of a few words.
type choice struct {
	value string
	of    []string
}

func (c *choice) Set(value string) error {
	if !slices.Contains(c.of, value) {
		return fmt.Errorf("want %s", strings.Join(c.of, " or "))
	}
	c.value = value
	return nil
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.of, "|") }

// A store is where counts are kept. The zero value is this process's memory.
type store struct {
	shared *redisstore.Options // nil: not shared
}

func (s *store) Set(value string) error {
	if value == "memory" {
		s.shared = nil
		return nil
	}
	o, err := redisstore.Parse(value)
	if err != nil && !strings.Contains(value, "://") {
		return errors.New("want memory or redis://HOST:PORT")
	}
	if err != nil {
		return err
	}
	s.shared = &o
	return nil
}

// String returns what sets the store, without users and passwords.
func (s *store) String() string {
	if s.shared == nil {
		return "memory"
	}
	return s.shared.String()
}

// withoutSecrets is a value that could not be set, as an error may show it. Where a password stands in it is uncertain then, so
// little is shown.
func (s *store) withoutSecrets(value string) string {
	scheme, _, ok := strings.Cut(value, "://")
	if !ok {
		scheme = value
	}
	if strings.ContainsFunc(scheme, func(r rune) bool { return r != '-' && !unicode.IsLetter(r) }) {
		return "…"
	}
	if ok {
		scheme += "://…"
	}
	return scheme
}

func (s *store) Type() string { return "STORE" }

// A number is a whole number within bounds.
type number struct{ value, min, max int }

func (n *number) Set(value string) error {
	i, err := strconv.Atoi(value)
	if err != nil || i < n.min || i > n.max {
		return fmt.Errorf("want a whole number from %d to %d", n.min, n.max)
	}
	n.value = i
	return nil
}

func (n *number) String() string { return strconv.Itoa(n.value) }
func (n *number) Type() string   { return "N" }

// An onOff is a switch. Given without a value, its flag means on.
type onOff bool

func (o *onOff) Set(value string) error {
	switch value {
	case "on", "true", "1":
		*o = true
	case "off", "false", "0":
		*o = false
	default:
		return errors.New("want on or off")
	}
	return nil
}

func (o *onOff) String() string {
	if *o {
		return "on"
	}
	return "off"
}

func (o *onOff) Type() string { return "on|off" }

// A paths value is a list of files; its flag is repeatable.
type paths []string

func (p *paths) Set(value string) error {
	if value == "" {
		return errors.New("want the name of a file")
	}
	*p = append(*p, value)
	return nil
}

func (p *paths) String() string { return strings.Join(*p, ",") }
func (p *paths) Type() string   { return "FILE" }

// An origins value is a list of web origins, or * for any.
type origins []string

func (o *origins) Set(value string) error {
	var all []string
	for _, element := range strings.Split(value, ",") {
		element = strings.TrimSpace(element)
		u, err := url.Parse(element)
		if element != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != element) {
			return fmt.Errorf("%q is no origin; want a list such as https://example.com,http://localhost:3000, or *", element)
		}
		all = append(all, element)
	}
	if len(all) > 1 && slices.Contains(all, "*") {
		return errors.New("* already means any origin; want it alone or a list without it")
	}
	*o = all
	return nil
}

func (o *origins) String() string { return strings.Join(*o, ",") }
func (o *origins) Type() string   { return "ORIGIN,..." }
