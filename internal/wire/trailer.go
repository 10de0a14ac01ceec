package wire

import "strings"

// headOnly are the fields that RFC 9110, section 6.5.1, keeps out of trailers by their purpose.
// Some backends merge trailers into the head, and would act on such a field after we have judged
// the head without it.
var headOnly = map[string]bool{
	// framing, and the connection
	"transfer-encoding": true, "content-length": true, "connection": true, "keep-alive": true, "te": true, "trailer": true,
	"upgrade": true, "http2-settings": true,
	// routing, and who is asking
	"host": true, "forwarded": true, "via": true, "x-real-ip": true, "origin": true, "referer": true,
	// authentication
	"authorization": true, "authentication-info": true, "www-authenticate": true, "cookie": true, "set-cookie": true,
	// modifiers of the request
	"cache-control": true, "expect": true, "max-forwards": true, "pragma": true, "range": true, "accept": true, "x-http-method-override": true,
	// control of the response
	"age": true, "date": true, "expires": true, "location": true, "retry-after": true, "vary": true, "warning": true,
	"strict-transport-security": true, "allow": true, "accept-ranges": true,
	// how the content of the message is read
	"content-type": true, "content-encoding": true, "content-range": true, "content-language": true, "content-location": true,
	"content-disposition": true, "content-security-policy": true, "content-security-policy-report-only": true,
}

// headOnlyPrefixes are what the names of whole families of such fields begin with.
var headOnlyPrefixes = []string{"proxy-", "if-", "accept-", "access-control-", "sec-", "x-forwarded-"}

// MayTrail reports whether a field may come as a trailer: not if it is for framing, routing,
// authentication or reading the content (RFC 9110, section 6.5.1), in any case. An underscore
// counts as a dash, since some backends treat them alike.
func MayTrail(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	for _, prefix := range headOnlyPrefixes {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return !headOnly[name]
}
