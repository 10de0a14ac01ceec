package std

import (
	"crypto/tls"
	"strings"
)

// withoutCertificate returns the state of a connection as if its client had shown no certificate.
func withoutCertificate(of *tls.ConnectionState) *tls.ConnectionState {
	state := *of // which other requests of the connection share
	state.PeerCertificates, state.VerifiedChains = nil, nil
	return &state
}

// handshakeFailed begins the line about a TLS handshake, before the peer, ": " and the error.
const handshakeFailed = "http: TLS handshake error"

// noteRefused notes a refused certificate, if that is what a line of net/http's log is about.
func (e *Engine) noteRefused(line string) {
	text, ok := strings.CutPrefix(line, handshakeFailed+" from ")
	if !ok {
		return
	}
	peer, failure, _ := strings.Cut(strings.TrimSpace(text), ": ")
	// as tls.CertificateVerificationError writes it
	if why, ok := strings.CutPrefix(failure, "tls: failed to verify certificate: "); ok {
		e.NoteRefusedCertificate(peer, why)
	}
}
