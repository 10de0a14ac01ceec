package policyfile

import (
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/net/idna"

	"github.com/weirlimit/weir"
)

// ParseRoute is weir.ParseRoute, and accepts hosts in the letters of any language: it returns them
// in their ASCII form, in which clients send them (D33).
func ParseRoute(s string) (weir.Route, error) {
	words := strings.Fields(s)
	if len(words) == 0 {
		return weir.ParseRoute(s)
	}
	last := &words[len(words)-1]
	host, path, _ := strings.Cut(*last, "/")
	if isASCII(host) {
		return weir.ParseRoute(s)
	}
	ascii, err := ASCIIHost(host)
	if err != nil {
		return weir.Route{}, fmt.Errorf("route %q: %w", s, err)
	}
	*last = ascii + "/" + path
	return weir.ParseRoute(strings.Join(words, " "))
}

// ASCIIHost returns the ASCII form of a host, in which clients send it, by the rules of a look-up
// (RFC 5891, section 5). The host may begin with a star, and end with a port. One that is ASCII
// already is returned as it is, and not checked.
func ASCIIHost(host string) (string, error) {
	if isASCII(host) {
		return host, nil
	}
	name, star := strings.CutPrefix(host, "*.")
	name, port, hasPort := strings.Cut(name, ":")
	ascii, err := idna.Lookup.ToASCII(name)
	if err != nil {
		return "", fmt.Errorf("host %q has no ASCII form (%w): letters and digits of any language, dashes and dots are allowed", host, err)
	}
	if star {
		ascii = "*." + ascii
	}
	if hasPort {
		ascii += ":" + port
	}
	return ascii, nil
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}

// hostedPath matches a host, with what other products write around it, and a path.
var hostedPath = regexp.MustCompile(`^(?:[A-Za-z][A-Za-z0-9+.-]*://)?(\*?)\.?([^/*:@\[\]]*\.[^/*:@\[\]]+|\[[0-9A-Fa-f:.]+\]|localhost)(?::[0-9]*)?(/.*)?$`)

// routeHint returns advice on a route that cannot be parsed, or "" if the error is enough.
func routeHint(s string) string {
	words := strings.Fields(s)
	if len(words) == 0 {
		return ""
	}
	host, path := "", words[len(words)-1]
	if m := hostedPath.FindStringSubmatch(path); m != nil {
		if host, path = m[2], m[3]; m[1] != "" {
			host = "*." + host
		}
	} else if _, rest, ok := strings.Cut(path, "://"); ok {
		_, path, _ = strings.Cut(rest, "/")
	}
	path, _, _ = strings.Cut(path, "?")
	if before, _, ok := strings.Cut(path, "*"); ok {
		path = before + "*"
	}
	if path == "" || path[0] != '/' {
		path = "/" + path
	}
	better := host + path
	if len(words) == 2 && words[0] != "*" && !strings.EqualFold(words[0], "any") {
		better = strings.ToUpper(words[0]) + " " + better
	}
	if _, err := ParseRoute(better); err == nil {
		return "such as: " + better
	}
	if len(words) == 2 && strings.ContainsAny(words[0], ",|") {
		return "write a route for each method, or none for all methods: " + path
	}
	return ""
}
