package identity

import (
	"bytes"
	"io"
	"net/http"
)

// An HTTPRequest is a Request made from net/http's. A pointer to it implements Request, so that it can live inside a
// caller-owned struct. Body replaces the request's Body by one that gives the looked-at bytes again.
type HTTPRequest struct {
	*http.Request
}

// Peer implements Request.
func (r *HTTPRequest) Peer() string { return r.RemoteAddr }

// Header implements Request.
func (r *HTTPRequest) Header(name string) []string { return r.Request.Header[name] }

// Query implements Request.
func (r *HTTPRequest) Query(name string) (string, bool) {
	return QueryValue(r.URL.RawQuery, name)
}

// Body implements Request. It waits until limit bytes or the end have come; the server's time-outs bound that. An error that
// it meets is met again by the next reader, behind the same bytes.
func (r *HTTPRequest) Body(limit int) []byte {
	if r.Request.Body == nil || r.Request.Body == http.NoBody {
		return nil
	}
	rest := r.Request.Body
	start, err := io.ReadAll(io.LimitReader(rest, int64(limit)))
	var tail io.Reader = rest
	if err != nil {
		tail = failed{err}
	}
	r.Request.Body = &replayed{io.MultiReader(bytes.NewReader(start), tail), rest}
	return start
}

// failed is what is left of a body that could not be read on.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// replayed is a body whose beginning was read already.
type replayed struct {
	io.Reader
	io.Closer
}
