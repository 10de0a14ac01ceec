package rules

import "strings"

// A Family is a group of fields that no client may send to a backend, and why. A name that ends
// with "*" is a prefix.
type Family struct {
	Reason string
	Names  []string
}

// WithheldFamilies are the fields by which a client could name another path, method or client than
// the ones that were counted (D10, D12). docs/operate.md lists them, and a test compares the page
// with this table.
var WithheldFamilies = []Family{
	{"the client and the forwarding proxy, which Weir writes itself", []string{
		"Forwarded*", "X-Forwarded*", "X-Original-Forwarded-For", "X-Vercel-Forwarded-For", "X-Vercel-Proxied-For", "Fly-Forwarded-*",
		"CloudFront-Forwarded-Proto", "CF-Visitor",
	}},
	{"the client's address, as frameworks and their guides read it", []string{
		"X-Real-IP", "X-Client-IP", "Client-IP", "X-Cluster-Client-IP", "X-Remote-IP", "X-Remote-Addr", "Remote-IP", "Remote-Addr",
		"X-Originating-IP", "X-Original-For", "X-Original-Remote-Addr", "X-ProxyUser-IP", "X-Coming-From", "Coming-From", "X-Envoy-External-Address",
	}},
	{"the client's address, as a CDN or a hosting provider writes it", []string{
		"True-Client-IP", "CF-Connecting-IP", "CF-Connecting-IPv6", "CF-Pseudo-IPv4", "Fastly-Client-IP", "Fly-Client-IP", "DO-Connecting-IP",
		"EO-Connecting-IP", "EO-Client-IP", "Incap-Client-IP", "X-Sucuri-ClientIP", "X-Azure-ClientIP", "X-Azure-SocketIP", "X-AppEngine-User-IP",
		"X-AppEngine-Remote-Addr", "X-NF-Client-Connection-IP", "CloudFront-Viewer-Address", "Ali-CDN-Real-IP", "CDN-Src-IP", "X-CDN-Src-IP",
	}},
	{"what a proxy reports to WebLogic and other Java servers; CGI takes `Proxy` for the variable HTTP_PROXY", []string{
		"Proxy", "Proxy-*", "WL-Proxy-*",
	}},
	{"the scheme of the client's connection", []string{
		"X-Scheme", "X-URL-Scheme", "X-Original-Proto", "X-Original-Scheme", "Front-End-Https", "X-Proxied-Https", "X-ARR-SSL", "Fastly-SSL",
	}},
	{"the client's certificate, as the server reports it that ends TLS (RFC 9440)", []string{"Client-Cert", "Client-Cert-Chain"}},
	{"the requested host", []string{
		"X-Host", "X-Original-Host", "X-Rewrite-Host", "X-Host-Override", "X-HTTP-Host-Override", "X-Envoy-Original-Dst-Host",
	}},
	{"the path that an application is mounted at, which is removed from the path that was counted", []string{
		"Script-Name", "X-Script-Name", "Daphne-Root-Path", "X-Original-Prefix", "X-Traversal-Path", "X-Request-Base",
	}},
	{"the path itself (IIS and its rewriting, Symfony, Laminas, Envoy, Traefik, Next.js, CGI variables)", []string{
		"X-Original-URL", "X-Original-URI", "X-Original-Path", "X-Rewrite-URL", "X-Rewrite-URI", "X-Rewrite-Path", "X-Override-URL",
		"X-WAF-Rewrite-URL", "X-Replaced-Path", "X-Envoy-Original-Path", "X-Request-URI", "Request-URI", "Path-Info", "X-Path-Info",
		"Path-Translated", "Script-Filename", "Script-URL", "Script-URI", "Document-URI", "X-Matched-Path", "X-Invoke-Path", "X-Invoke-Query",
		"X-Middleware-Subrequest",
	}},
	{"the method", []string{
		"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "HTTP-Method-Override", "Method-Override", "X-Original-Method",
		"X-Envoy-Original-Method", "Request-Method",
	}},
	{"files that a web server in front of Rack sends for it", []string{"X-Sendfile-Type", "X-Accel-Mapping"}},
	{"an upgrade of the connection to HTTP/2", []string{"HTTP2-Settings"}},
}

// A fieldIndex finds the names of families without allocating.
type fieldIndex struct {
	names    map[string]bool // in lower case
	prefixes []string
	// for each first byte, a bit for each length of a name; bit 0: a prefix begins so
	lengths [256]uint64
}

var withheld = indexFields(WithheldFamilies)

func indexFields(families []Family) *fieldIndex {
	x := &fieldIndex{names: make(map[string]bool)}
	for _, f := range families {
		for _, name := range f.Names {
			name = strings.ToLower(name)
			if prefix, ok := strings.CutSuffix(name, "*"); ok {
				x.prefixes = append(x.prefixes, prefix)
				x.lengths[name[0]] |= 1
				continue
			}
			if len(name) > maxIndexedName {
				panic("the name of a field is longer than maxIndexedName: " + name)
			}
			x.names[name] = true
			x.lengths[name[0]] |= 1 << len(name)
		}
	}
	return x
}

// maxIndexedName is the length of the longest name that a Family may have, prefixes aside.
const maxIndexedName = 63

// IsWithheld reports whether a field of a request, or a trailer, is not forwarded (D10): it is in
// WithheldFamilies, in any case, or its name has a byte other than letters, digits and dashes,
// which CGI, WSGI and PHP read as a dash. The empty name is withheld.
func IsWithheld(name string) bool {
	if name == "" {
		return true
	}
	for i := range len(name) {
		if nameBytes[name[i]] == 0 {
			return true
		}
	}
	return withheld.has(name)
}

// has reports whether a name is in one of the families, in any case.
func (x *fieldIndex) has(name string) bool {
	if name == "" {
		return false
	}
	bits := x.lengths[nameBytes[name[0]]]
	if bits&1 != 0 {
		for _, prefix := range x.prefixes {
			if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				return true
			}
		}
	}
	if len(name) > maxIndexedName || bits&(1<<len(name)) == 0 {
		return false
	}
	var lower [maxIndexedName]byte
	for i := range len(name) {
		lower[i] = nameBytes[name[i]]
	}
	return x.names[string(lower[:len(name)])]
}

// nameBytes holds the lower case of each byte that names of forwarded fields are made of, and 0 for
// all others.
var nameBytes = func() (table [256]byte) {
	for c := range table {
		switch b := byte(c); {
		case 'a' <= b && b <= 'z', '0' <= b && b <= '9', b == '-':
			table[c] = b
		case 'A' <= b && b <= 'Z':
			table[c] = b + 'a' - 'A'
		}
	}
	return table
}()
