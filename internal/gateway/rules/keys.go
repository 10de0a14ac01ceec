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

// CertificateFields are the beginnings of the names by which proxies report a client's certificate.
// If Weir asks clients for certificates, it is the proxy that would write them, so none is
// forwarded.
var CertificateFields = []string{"SSL-Client-", "X-SSL-", "X-Client-Cert", "X-Amzn-Mtls-", "X-ARR-ClientCert", "CF-Client-Cert-"}

// reportsCertificate reports whether a field is one of CertificateFields, in any case.
func reportsCertificate(name string) bool {
	for _, prefix := range CertificateFields {
		if len(name) >= len(prefix) && wire.EqualFold(name[:len(prefix)], prefix) {
			return true
		}
	}
	return false
}

// HidesName reports whether no field of that name, and no trailer, is forwarded because it may hold
// a token, or because only Weir knows what it reports (CertificateFields). name may be in any case.
func (r *Rules) HidesName(name string) bool {
	if r.Holds != nil && reportsCertificate(name) {
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
