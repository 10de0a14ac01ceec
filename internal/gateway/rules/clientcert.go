package rules

import (
	"crypto/x509"
	"net/http"
	"time"
)

// IsOutdated reports whether a client showed a certificate when its connection began, by the chains
// that verified then, and none of them does now.
func (r *Rules) IsOutdated(chains [][]*x509.Certificate, now time.Time) bool {
	return len(chains) > 0 && r.Holds != nil && !r.Holds(chains, now)
}

// outdated answers a request on a connection whose client certificate is no longer valid. On a new
// one the client can show another (RFC 9110, section 15.5.20).
var outdated = Answer{Status: http.StatusMisdirectedRequest, Code: "misdirected_request", Closes: true,
	Message: "The client certificate of this connection has expired or is no longer accepted. Connect again with a valid one."}

// NoteRefusedCertificate logs that the certificate of a client did not verify, and why, once a
// minute at most.
func (r *Rules) NoteRefusedCertificate(peer, why string) {
	if log, others := r.refused.Allow(time.Now()); log {
		r.Log.Warn("a client got no connection, because its certificate does not verify; further ones are logged once a minute", "peer", peer, "error", why, "others_since_the_last_line", others)
	}
}
