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

// announce leaves the binding window of the response for the limiter around this one, if there is
// one and the response has fields of a window.
func (x *response) announce(binding weir.Standing) {
	if outer := exchangeUnder(x.ResponseWriter); outer != nil && binding.Window != nil {
		outer.inner = innerAnswer{true, binding}
	}
}
