package rules

import (
	"crypto/x509"
	"net/http"
	"sync"
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

// refusedPause is how long the log has no second line about refused certificates: any stranger can
// show one.
const refusedPause = time.Minute

// refusedCertificates counts the certificates of clients that were refused since the last line of
// the log about them. It is safe for concurrent use.
type refusedCertificates struct {
	mu     sync.Mutex
	logged time.Time // the last line
	others int       // refused since, without a line
}

// note counts a certificate that is refused at now. It reports whether to log it, and how many were
// refused since the last line.
func (c *refusedCertificates) note(now time.Time) (log bool, others int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.logged.IsZero() && now.Sub(c.logged) < refusedPause {
		c.others++
		return false, 0
	}
	others = c.others
	c.logged, c.others = now, 0
	return true, others
}

// NoteRefusedCertificate logs that the certificate of a client did not verify, and why, once a
// minute at most.
func (r *Rules) NoteRefusedCertificate(peer, why string) {
	if log, others := r.refused.note(time.Now()); log {
		r.Log.Warn("a client got no connection, because its certificate does not verify; further ones are logged once a minute", "peer", peer, "error", why, "others_since_the_last_line", others)
	}
}
