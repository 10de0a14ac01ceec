package redisstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Parse reads Options from a URL:
//
//	redis://[[user]:password@]host[:port][,host[:port]…][/db][?prefix=…&replicas=…]
//	redis-sentinel://[[user]:password@]host[:port][,…]/master[/db][?prefix=…&replicas=…&sentinel_user=…&sentinel_password=…]
//
// The first form names one server, or some nodes of a cluster. The second names Sentinels and, as
// master, the server that they know; user and password are the server's. rediss:// and
// rediss-sentinel:// use TLS. They accept ?ca=FILE, a private authority's certificates, and
// ?cert=FILE&key=FILE, a client's certificate and key; New reads the files. The default ports are
// 6379 and 26379. An IPv6 address is in brackets. Reserved characters are escaped: / in a password
// is %2F. An unknown part is an error. No error contains any part of a user or password.
func Parse(rawURL string) (Options, error) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	form, known := forms[strings.ToLower(scheme)]
	if !ok || !known {
		return Options{}, errors.New("expected redis://HOST:PORT, rediss://HOST:PORT (TLS) or redis-sentinel://HOST:PORT/MASTER")
	}
	var o Options
	if form.tls {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	authority, rest := cutBefore(rest, "/?#")
	path, query := cutBefore(rest, "?#")
	user, hosts := "", authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, hosts = authority[:at+1], authority[at+1:]
	}
	if strings.ContainsAny(rest, "@#") { // otherwise a part of a password would be read as a host
		return Options{}, errors.New("a / ? or # in a user or password is written %2F %3F %23, and an @ or # behind the hosts %40 %23")
	}
	if err := o.parseUser(user); err != nil {
		return Options{}, err
	}
	if err := o.parseHosts(hosts, form.port); err != nil {
		return Options{}, err
	}
	if err := o.parsePath(path, form.sentinel); err != nil {
		return Options{}, err
	}
	if err := o.parseQuery(strings.TrimPrefix(query, "?"), form); err != nil {
		return Options{}, err
	}
	return o, nil
}

// A form is the meaning of a scheme.
type form struct {
	tls, sentinel bool
	port          string // the default
}

var forms = map[string]form{
	"redis":           {port: "6379"},
	"rediss":          {port: "6379", tls: true},
	"redis-sentinel":  {port: "26379", sentinel: true},
	"rediss-sentinel": {port: "26379", sentinel: true, tls: true},
}

// cutBefore cuts s before the first byte that is in any.
func cutBefore(s, any string) (before, from string) {
	if i := strings.IndexAny(s, any); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// parseUser reads the part up to and including the @ before the hosts.
func (o *Options) parseUser(user string) error {
	if user == "" {
		return nil
	}
	name, password, _ := strings.Cut(strings.TrimSuffix(user, "@"), ":")
	var nameErr, passwordErr error
	o.Username, nameErr = url.PathUnescape(name)
	o.Password, passwordErr = url.PathUnescape(password)
	if nameErr != nil || passwordErr != nil {
		return errors.New("a % in the user or password that does not begin an escape is written %25")
	}
	if o.Password == "" {
		return errors.New("there is an @ before the hosts, and no password: expected USER:PASSWORD@, :PASSWORD@, or neither and no @")
	}
	return nil
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,255}$`)

func (o *Options) parseHosts(hosts, port string) error {
	for i, element := range strings.Split(hosts, ",") {
		host, at, err := splitHost(element, port)
		if err != nil {
			return fmt.Errorf("%s host: %w", ordinal(i+1), err)
		}
		o.Addresses = append(o.Addresses, net.JoinHostPort(host, at))
	}
	return nil
}

// splitHost reads HOST, HOST:PORT, [IPV6] or [IPV6]:PORT. Its errors quote nothing of the element:
// if the URL lacks the host, the element may be a password.
func splitHost(element, fallback string) (host, port string, err error) {
	port = fallback
	if inside, ok := strings.CutPrefix(element, "["); ok {
		literal, rest, closed := strings.Cut(inside, "]")
		literal, err := url.PathUnescape(literal)
		addr, addrErr := netip.ParseAddr(literal)
		if err != nil || addrErr != nil || !closed || !addr.Is6() || (rest != "" && rest[0] != ':') {
			return "", "", errors.New("expected an IPv6 address in brackets, such as [2001:db8::1]:6379")
		}
		if zone := addr.Zone(); zone != "" && !hostName.MatchString(zone) {
			return "", "", errors.New("expected a zone of letters, digits, - . and _, such as [fe80::1%25eth0]:6379")
		}
		host, element = addr.String(), rest
	} else if strings.Count(element, ":") > 1 {
		return "", "", errors.New("it has more than one colon: expected HOST:PORT, an IPv6 address in brackets, and hosts separated by commas")
	} else {
		host, element = cutBefore(element, ":")
		if host == "" {
			return "", "", errors.New("it is empty: expected HOST:PORT, such as 127.0.0.1:6379")
		}
		if !hostName.MatchString(host) {
			return "", "", errors.New("a host's name has letters, digits, - . and _ only")
		}
	}
	if element != "" {
		port = element[1:]
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return "", "", errors.New("expected a port from 1 to 65535")
		}
		port = strconv.FormatUint(n, 10)
	}
	return host, port, nil
}

var masterName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,255}$`)

// maxDB is the highest number of a database. A server has 16 unless it is configured otherwise.
const maxDB = 1<<16 - 1

// parsePath reads /MASTER/DB with Sentinels, else /DB.
func (o *Options) parsePath(path string, sentinel bool) error {
	db := strings.TrimPrefix(path, "/")
	if sentinel {
		o.Master, db, _ = strings.Cut(db, "/")
		if o.Master == "" {
			return errors.New("the server's name is missing, as the Sentinels know it: expected redis-sentinel://HOST:PORT/MASTER, such as …/mymaster")
		}
		if !masterName.MatchString(o.Master) {
			return errors.New("the name of the server, behind the hosts, has letters, digits, - . and _ only")
		}
	}
	if db == "" {
		return nil
	}
	n, err := strconv.ParseUint(db, 10, 16)
	if err != nil {
		return fmt.Errorf("what follows the last / is a database: expected a number from 0 to %d", maxDB)
	}
	if n != 0 && !sentinel && len(o.Addresses) > 1 {
		return fmt.Errorf("database %d of several hosts: they are a cluster's, and a cluster has only database 0; leave it out", n)
	}
	o.DB = int(n)
	return nil
}

// A parameter may be given in the URL's query.
type parameter struct {
	name  string
	field func(*Options) value
	with  func(form) bool // nil: every scheme
	only  string          // the error if with returns false
}

// A value is a field of Options as text, "" if it is not set.
type value interface {
	get() string
	set(text string) error
}

type textValue struct{ at *string }

func (v textValue) get() string { return *v.at }

func (v textValue) set(text string) error {
	*v.at = text
	return nil
}

func text(at func(*Options) *string) func(*Options) value {
	return func(o *Options) value { return textValue{at(o)} }
}

type replicasValue struct{ at *int }

func (v replicasValue) get() string {
	if *v.at == 0 {
		return ""
	}
	return strconv.Itoa(*v.at)
}

func (v replicasValue) set(text string) error {
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || n < 1 || n > maxReplicas {
		return fmt.Errorf("expected a number from 1 to %d: how many replicas must have a take before it is answered", maxReplicas)
	}
	*v.at = int(n)
	return nil
}

var (
	withTLS      = func(f form) bool { return f.tls }
	withSentinel = func(f form) bool { return f.sentinel }
)

const (
	onlyTLS      = "only TLS has certificates: expected rediss:// or rediss-sentinel://"
	onlySentinel = "it is only for redis-sentinel://"
)

var parameters = []parameter{
	{"prefix", text(func(o *Options) *string { return &o.Prefix }), nil, ""},
	{"replicas", func(o *Options) value { return replicasValue{&o.Replicas} }, nil, ""},
	{"sentinel_user", text(func(o *Options) *string { return &o.SentinelUsername }), withSentinel, onlySentinel},
	{"sentinel_password", text(func(o *Options) *string { return &o.SentinelPassword }), withSentinel, onlySentinel},
	{"ca", text(func(o *Options) *string { return &o.CAFile }), withTLS, onlyTLS},
	{"cert", text(func(o *Options) *string { return &o.CertFile }), withTLS, onlyTLS},
	{"key", text(func(o *Options) *string { return &o.KeyFile }), withTLS, onlyTLS},
}

var prefixForm = regexp.MustCompile(`^[A-Za-z0-9_:.-]{1,64}$`)

func (o *Options) parseQuery(query string, f form) error {
	if query == "" {
		return nil
	}
	for _, pair := range strings.Split(query, "&") {
		if err := o.parseParameter(pair, f); err != nil {
			return err
		}
	}
	if o.Prefix != "" && !prefixForm.MatchString(o.Prefix) {
		return fmt.Errorf("prefix %q: expected 1 to 64 of - _ : . and letters and digits", o.Prefix)
	}
	if o.SentinelUsername != "" && o.SentinelPassword == "" {
		return errors.New("sentinel_user has no effect without sentinel_password")
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return errors.New("cert and key go together: a client's certificate and its private key")
	}
	return nil
}

func (o *Options) parseParameter(pair string, f form) error {
	name, escaped, _ := strings.Cut(pair, "=")
	i := slices.IndexFunc(parameters, func(p parameter) bool { return p.name == name })
	if i < 0 {
		return errors.New("an unknown parameter behind the question mark: prefix, replicas, sentinel_user, sentinel_password, ca, cert and key are allowed; " +
			"a ? in a password is written %3F")
	}
	p := parameters[i]
	if p.with != nil && !p.with(f) {
		return fmt.Errorf("parameter %s: %s", name, p.only)
	}
	value, err := url.PathUnescape(escaped)
	if err != nil {
		return fmt.Errorf("parameter %s: a %% that does not begin an escape is written %%25", name)
	}
	field := p.field(o)
	if value == "" {
		return fmt.Errorf("parameter %s is empty: give it a value, or leave it out", name)
	}
	if field.get() != "" {
		return fmt.Errorf("parameter %s is given twice", name)
	}
	if err := field.set(value); err != nil {
		return fmt.Errorf("parameter %s: %w", name, err)
	}
	return nil
}

func ordinal(n int) string {
	if words := []string{"first", "second", "third"}; n <= len(words) {
		return words[n-1]
	}
	return strconv.Itoa(n) + "th"
}

// String returns the URL that Parse reads these options from, without users and passwords, so that
// it is safe to print.
func (o Options) String() string {
	var b strings.Builder
	b.WriteString("redis")
	if o.TLS != nil {
		b.WriteString("s")
	}
	if o.Master != "" {
		b.WriteString("-sentinel")
	}
	b.WriteString("://")
	for i, address := range o.Addresses {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(strings.ReplaceAll(address, "%", "%25")) // of a zone
	}
	if o.Master != "" {
		b.WriteString("/" + o.Master)
	}
	if o.DB != 0 {
		b.WriteString("/" + strconv.Itoa(o.DB))
	}
	mark := "?"
	for _, p := range parameters {
		value := p.field(&o).get()
		if value == "" || strings.HasPrefix(p.name, "sentinel_") {
			continue
		}
		b.WriteString(mark + p.name + "=" + strings.ReplaceAll(url.QueryEscape(value), "+", "%20"))
		mark = "&"
	}
	return b.String()
}
