package rules

import (
	"sync"
	"time"
)

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
