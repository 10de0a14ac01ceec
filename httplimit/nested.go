package httplimit

import (
	"net/http"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
)

// An innerAnswer is what a limiter that is nested in another one has written into the header that
// they share. It belongs to the exchange of the outer one.
type innerAnswer struct {
	written bool
	ietf    bool // with RateLimit and RateLimit-Policy
	binding weir.Standing
}

// bindsInner reports whether the response keeps the fields that an inner limiter has written,
// because its binding window is the one that the headers describe (D4). They stay together: fields
// of two limiters would contradict each other. A middleware between the two may have dropped them.
func (e *exchange) bindsInner(h http.Header) bool {
	if !e.inner.written || len(h[answer.Names[0]]) == 0 {
		return false
	}
	own := e.answer.Decision.Binding()
	return own.Window == nil || e.inner.binding.Binds(&own)
}

// agree adds the fields of the IETF draft to the answer if a limiter inside this one or around it
// writes them. They then describe the limiter whose fields the response has, whichever it is, and
// are never left from the other (D4, D23).
func (x *response) agree() {
	e := x.exchange
	e.ietf = e.ietf || e.inner.ietf
	for outer := responseUnder(x.ResponseWriter); outer != nil && !e.ietf; outer = responseUnder(outer.ResponseWriter) {
		e.ietf = outer.exchange != nil && outer.exchange.ietf
	}
	if e.ietf {
		e.answer.AddIETF()
	}
}

// announce leaves the binding window of the response for the limiter around this one, if there is
// one and the response has fields of a window.
func (x *response) announce(binding weir.Standing) {
	if outer := exchangeUnder(x.ResponseWriter); outer != nil && binding.Window != nil {
		outer.inner = innerAnswer{true, x.exchange.ietf, binding}
	}
}
