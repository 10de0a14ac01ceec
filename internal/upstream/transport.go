package upstream

import "net/http"

// Transport returns a RoundTripper over base that sends each request to an address of the pool, passing on to the next one
// where a connection is refused, and that judges addresses by the outcome as the pool does.
func (p *Pool) Transport(base http.RoundTripper) http.RoundTripper { panic("not yet") }
