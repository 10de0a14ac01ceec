package identity

import (
	"bytes"
	"io"
	"net/http"
	"net/netip"
)

// An HTTPRequest is a Request made from net/http's. A pointer to it implements Request, so that it
// can be part of a caller-owned struct. Body replaces the request's Body by one that yields the
// bytes again that were read.
type HTTPRequest struct {
	*http.Request
}

// Peer implements Request.
func (r *HTTPRequest) Peer() netip.Addr { return ParsePeer(r.RemoteAddr) }

// Header implements Request.
func (r *HTTPRequest) Header(name string) []string { return r.Request.Header[name] }

// Host implements Request.
func (r *HTTPRequest) Host() string { return r.Request.Host }

// RawQuery implements Request.
func (r *HTTPRequest) RawQuery() string { return r.URL.RawQuery }

// Certificate implements Request. It goes by the chains that net/http's server has verified.
func (r *HTTPRequest) Certificate() *Certificate {
	if r.TLS == nil {
		return nil
	}
	return NewCertificate(r.TLS.VerifiedChains)
}

// Body implements Request. It blocks until limit bytes or the end have arrived; the server's
// timeouts bound that. An error of the body is returned to the next reader too, after the same
// bytes.
func (r *HTTPRequest) Body(limit int) []byte {
	if r.Request.Body == nil || r.Request.Body == http.NoBody {
		return nil
	}
	rest := r.Request.Body
	start, err := io.ReadAll(io.LimitReader(rest, int64(limit)))
	var tail io.Reader = rest
	switch {
	case err != nil:
		tail = failed{err}
	case len(start) < limit:
		// The server closes the body when the response begins, and a transport that sends it may
		// look for its end only then.
		tail = failed{io.EOF}
	}
	r.Request.Body = &replayed{io.MultiReader(bytes.NewReader(start), tail), rest}
	return start
}

// failed is the rest of a body after its end, or after a read error.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// replayed is a body whose first bytes were read already.
type replayed struct {
	io.Reader
	io.Closer
}
