package rules

import (
	"strings"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/wire"
)

// hiddenTokens are the places in which callers send the tokens that no upstream gets.
type hiddenTokens struct {
	fields     []string
	schemes    []string // of Authorization
	parameters []string // of the query
}

func newHiddenTokens(places []identity.Place) hiddenTokens {
	var h hiddenTokens
	add := func(list *[]string, name string) {
		if name != "" {
			*list = append(*list, name)
		}
	}
	for _, p := range places {
		add(&h.fields, p.Field())
		add(&h.schemes, p.Scheme())
		add(&h.parameters, p.Parameter())
	}
	return h
}

// HidesField reports whether a field of a request is not forwarded because it may hold a token
// (Options.HideTokens). name may be in any case.
func (r *Rules) HidesField(name, value string) bool {
	return r.HidesName(name) || r.HidesSchemes() && wire.EqualFold(name, "Authorization") && r.hidesScheme(value)
}

// CertificateFields are the fields by which servers that end TLS report a client's certificate,
// with who writes them. If Weir asks clients for certificates, it is that server, and a field with
// such a name is the caller's own word, so none is forwarded. If it does not ask, a server before
// it may, so all are. docs/fields.md lists them, and a test compares the page with this table.
var CertificateFields = []Family{
	{"guides for nginx and Apache, in the words of `$ssl_client_s_dn` and `%{SSL_CLIENT_S_DN}s`; [ingress-nginx](https://kubernetes.github.io/ingress-nginx/user-guide/nginx-configuration/annotations/#client-certificate-authentication), [HAProxy](https://www.haproxy.com/blog/ssl-client-certificate-information-in-http-headers-and-logs)", []string{
		"SSL-Client-*", "X-SSL-*", "SSL-Cert*", "Client-Cert*", "Client-Verif*", "Client-DN", "DN", "Verified",
	}},
	{"[Puppet](https://puppet.com/docs/puppet/8/external_ssl_termination.html), [Pulp](https://github.com/pulp/pulpcore/blob/main/pulp_certguard/docs/admin/guides/reverse_proxy_config.md), [Kong](https://developer.konghq.com/plugins/tls-metadata-headers/), [Google Cloud](https://cloud.google.com/load-balancing/docs/https/custom-headers#mtls-variables), Caddyfiles with `{tls_client_subject}`", []string{
		"X-Client-Cert*", "X-Client-Verif*", "X-Client-DN*", "X-Client-S-DN*", "X-Client-I-DN*", "X-Client-Subject*", "X-Client-Issuer*",
		"X-Client-Serial*", "X-Client-Fingerprint*", "X-Client-SAN*", "X-Client-SPIFFE*", "X-Client-CN", "X-Client-Common-Name",
		"X-Client-TLS-*", "X-Client-SSL-*",
	}},
	{"[Syncthing](https://github.com/syncthing/syncthing/blob/main/cmd/stdiscosrv/apisrv.go) behind Caddy, [MinIO KES](https://min.io/docs/kes/concepts/tls-proxy/), guides for mutual TLS", []string{
		"X-TLS-Client-*", "TLS-Client-*", "X-mTLS-*", "mTLS-Client-*",
	}},
	{"[AWS](https://docs.aws.amazon.com/elasticloadbalancing/latest/application/mutual-authentication.html), [Azure](https://learn.microsoft.com/azure/app-service/app-service-web-configure-tls-mutual-auth), [F5](https://clouddocs.f5.com/cli/tmsh-reference/v13/modules/ltm/ltm_rule_command_X509_cert_fields.html)", []string{
		"X-Amzn-Mtls-*", "X-ARR-ClientCert*", "SSLClient*",
	}},
	{"Cloudflare, [by itself](https://developers.cloudflare.com/rules/transform/managed-transforms/reference/) and in [its examples](https://developers.cloudflare.com/ssl/client-certificates/forward-a-client-certificate/)", []string{
		"CF-Client-Cert-*", "CF-Cert-*", "X-Cert-*",
	}},
}

var certificateIndex = indexFields(CertificateFields)

// HidesName reports whether no field of that name, and no trailer, is forwarded because it may hold
// a token, or because only Weir knows what it reports (CertificateFields). name may be in any case.
func (r *Rules) HidesName(name string) bool {
	if r.Holds != nil && certificateIndex.has(name) {
		return true
	}
	for _, field := range r.hidden.fields {
		if wire.EqualFold(name, field) {
			return true
		}
	}
	return false
}

// HidesSchemes reports whether an Authorization may not be forwarded, depending on its scheme. If a
// request has several, one that is hidden hides all: what is left could be valid on its own, and
// was not counted so.
func (r *Rules) HidesSchemes() bool { return len(r.hidden.schemes) > 0 }

// hidesScheme reports whether the value of Authorization has a hidden scheme. A value that identity
// rejects, such as one with a tab after the scheme, is hidden as well.
func (r *Rules) hidesScheme(value string) bool {
	value = strings.TrimLeft(value, " \t")
	for _, scheme := range r.hidden.schemes {
		if len(value) >= len(scheme) && strings.EqualFold(value[:len(scheme)], scheme) &&
			(len(value) == len(scheme) || !wire.IsToken(value[len(scheme):len(scheme)+1])) {
			return true
		}
	}
	return false
}

// ShownQuery returns a raw query without the parameters that may hold a token.
func (r *Rules) ShownQuery(raw string) string {
	for _, name := range r.hidden.parameters {
		raw = identity.CutQuery(raw, name)
	}
	return raw
}
