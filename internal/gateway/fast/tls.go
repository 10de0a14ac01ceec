package fast

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway/pace"
)

// handshake performs the TLS handshake. It reports whether the connection goes on here: not if the
// handshake failed, and not if another protocol was agreed on.
func (c *conn) handshake() bool {
	hello := &helloConn{Conn: c.raw, c: c}
	secured := tls.Server(hello, c.engine.secure)
	if err := secured.HandshakeContext(&c.ctx); err != nil {
		var record tls.RecordHeaderError
		if errors.As(err, &record) && record.Conn != nil && looksLikeHTTP(record.RecordHeader) {
			_, _ = io.WriteString(record.Conn, "HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\nThis port speaks HTTPS. Use https:// in the URL.\n")
		}
		if bad := new(tls.CertificateVerificationError); errors.As(err, &bad) {
			c.engine.NoteRefusedCertificate(c.peer, bad.Err.Error())
		}
		c.engine.Log.Debug("a TLS handshake failed", "peer", c.peer, "error", err)
		return false
	}
	c.chains = secured.ConnectionState().VerifiedChains
	c.cert = identity.NewCertificate(c.chains)

	c.Conn = secured
	state := secured.ConnectionState()
	c.serverName = state.ServerName
	switch state.NegotiatedProtocol {
	case "h2":
		hello.c = nil // which has nothing more to do, and would keep c
		c.hand(secured)
		return false
	case "", "http/1.1", "http/1.0":
		return true
	}
	return false // an authority that validates a name wants nothing but the handshake (RFC 8737)
}

// isForeign reports whether the connection was made for another host than that of a request.
func (c *conn) isForeign(host string) bool {
	if c.engine.Covers == nil || host != "" && host == c.covered {
		return false
	}
	if c.engine.IsForeign(c.addr, c.serverName, host) {
		return true
	}
	c.covered = strings.Clone(host) // the rest of its head is not kept
	return false
}

// A helloConn is the connection that TLS is spoken over. The handshake has Limits.Header from its
// first byte, and so has the head of the first request from the first byte of its TLS record.
type helloConn struct {
	net.Conn
	c       *conn // nil: another engine has the connection
	records pace.Records
}

// NetConn returns the connection below.
func (h *helloConn) NetConn() net.Conn { return h.Conn }

// Read is net.Conn's.
func (h *helloConn) Read(p []byte) (int, error) {
	if h.c == nil || h.c.asked {
		return h.read(p)
	}
	n, err := h.read(h.records.Room(p))
	h.records.Read(p[:n])
	return n, err
}

func (h *helloConn) read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if n > 0 && h.c != nil && h.c.fresh {
		h.c.fresh = false
		h.c.moveDeadline(time.Now().Add(h.c.engine.Limits.Header))
		if h.c.phase.Load() == phaseClosing { // a drain does not wait for it
			_ = h.Conn.SetReadDeadline(longAgo)
		}
	}
	return n, err
}

// looksLikeHTTP reports whether the first bytes of what should be a TLS record are a method's.
func looksLikeHTTP(begin [5]byte) bool {
	switch string(begin[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH":
		return true
	}
	return false
}
