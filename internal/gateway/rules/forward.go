package rules

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weirlimit/weir/headers"
)

const (
	forwardedFor   = "X-Forwarded-For"
	forwardedProto = "X-Forwarded-Proto"
	forwardedHost  = "X-Forwarded-Host"
)

// hostFor returns what the upstream is told as Host: what the client said. HTTP/1.0 may say nothing, and anybody may say it is empty
// (RFC 9112, section 3.2); who asked for nobody is passed on to the upstream, which is told its own, of several the first's.
func (g *Gateway) hostFor(said string) string {
	if said == "" {
		return g.host
	}
	return said
}

// stripWithheld removes the fields that a client may not say to a backend (see isWithheld).
func stripWithheld(h http.Header) {
	for name := range h {
		if isWithheld(name) {
			delete(h, name)
		}
	}
}

// stripNominated removes the fields that a request's Connection names: the backend does not get them (RFC 9110, section 7.6.1), so nobody
// is counted by them either. Fields that are withheld stay, for those that say who forwards are meant for this hop; so do the fields by
// which this hop itself is spoken to.
func stripNominated(h http.Header) {
	for _, line := range h["Connection"] {
		for option := range strings.SplitSeq(line, ",") {
			if name := strings.Trim(option, " \t"); name != "" && !isHop(name) && !isFraming(name) && !isWithheld(name) {
				delete(h, http.CanonicalHeaderKey(name))
			}
		}
	}
}

// expectsBody reports whether a method gives a body its meaning. Requests of these methods say so if they have no body.
func expectsBody(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

// travelsAlone reports whether a request says that it is the last one on its upstream connection. A
// backend may leave a body that its method gives no meaning unread, and take it for its next request.
// length is the body's, 0 if there is none.
func travelsAlone(method string, length int64) bool {
	return length != 0 && !expectsBody(method)
}

// stripUpgrade removes every Upgrade but that of a websocket, which is asked for without a body: h2c above all would open a tunnel through
// which requests pass uncounted. httputil drops what Connection says of it.
func stripUpgrade(r *http.Request) {
	u, ok := r.Header["Upgrade"]
	if !ok {
		return
	}
	if !r.ProtoAtLeast(1, 1) || !isWebsocket(r.Method, u) || r.ContentLength != 0 {
		delete(r.Header, "Upgrade")
	}
}

// isWebsocket reports whether an HTTP/1.1 request with those Upgrade lines asks for a websocket and nothing else.
func isWebsocket(method string, upgrade []string) bool {
	return len(upgrade) == 1 && strings.EqualFold(strings.TrimSpace(upgrade[0]), "websocket") && method == http.MethodGet
}

// checkAnswer says what is wrong with an upstream's answer that reads well and means nothing here. asked says that the request asked for a
// websocket, which a 101 may switch to; upgrade are the lines of the answer's Upgrade.
func checkAnswer(status int, asked bool, upgrade []string) error {
	switch {
	case status < 100:
		return fmt.Errorf("it answered with status %03d: there is none below 100", status)
	case status == http.StatusSwitchingProtocols && (!asked || len(upgrade) != 1 || !strings.EqualFold(upgrade[0], "websocket")):
		return errors.New("it switched to a protocol that nobody asked for")
	}
	return nil
}

// forwardedProto returns the scheme of the client's connection: this one's, unless a trusted proxy stands between and
// says otherwise. said are the lines of X-Forwarded-Proto.
func (g *Gateway) forwardedProto(said []string, peer string, secured bool) string {
	if len(said) == 1 && (said[0] == "http" || said[0] == "https") && len(g.options.TrustedProxies) > 0 {
		if peer, err := netip.ParseAddrPort(peer); err == nil && g.trusts(peer.Addr()) {
			return said[0]
		}
	}
	if secured {
		return "https"
	}
	return "http"
}

// forgetLimits removes an upstream's own values of our fields.
func (g *Gateway) forgetLimits(h http.Header) {
	for name := range h {
		if g.isOurs(name) {
			delete(h, name)
		}
	}
}

// isOurs reports whether a field, however spelled, is one that only the limiter may say, whatever covers the request.
func (g *Gateway) isOurs(name string) bool {
	switch {
	case strings.EqualFold(name, headers.Limit), strings.EqualFold(name, headers.Remaining), strings.EqualFold(name, headers.Reset),
		strings.EqualFold(name, headers.RetryAfter), strings.EqualFold(name, headers.Date):
		return true
	case strings.EqualFold(name, headers.RateLimit), strings.EqualFold(name, headers.Policy):
		return g.options.IETF
	}
	return false
}

// A failure is what is said of an exchange with the upstream that came to nothing.
type failure struct {
	status        int
	code, message string
}

var (
	upstreamTimeout     = failure{http.StatusGatewayTimeout, "upstream_timeout", "The service behind this address did not answer in time. Please try again."}
	upstreamUnavailable = failure{http.StatusBadGateway, "upstream_unavailable", "The service behind this address is not available. Please try again later."}
	bodyBroken          = failure{http.StatusBadRequest, "invalid_request", "The request body ended early or is malformed."} // the connection ends with it, and with the next
	bodySlow            = failure{http.StatusRequestTimeout, "request_timeout", "The request body arrived too slowly, or stopped arriving."}
)

func (f *failure) write(w http.ResponseWriter) { writeError(w, f.status, f.code, f.message) }

// noUpstream says in the log that the upstream did not answer, counts it, and returns what the client is told.
func (g *Gateway) noUpstream(method, at string, err error) *failure {
	said, answer := "the upstream is not available", &upstreamUnavailable
	if isTimeout(err) {
		said, answer = "the upstream did not answer in time", &upstreamTimeout
	}
	g.log.Warn(said, "method", method, "upstream", at, "error", err)
	g.unanswered.add(answer.status)
	return answer
}

// bodyTooLarge is what is said of a request whose body is longer than limit.
func bodyTooLarge(limit int64) failure {
	return failure{http.StatusRequestEntityTooLarge, "payload_too_large",
		fmt.Sprintf("The request body is larger than the %d bytes that are allowed here.", limit)}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// bodyFailed answers a request whose body did not arrive whole.
func bodyFailed(w http.ResponseWriter, err error) {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		f := bodyTooLarge(large.Limit)
		f.write(w)
		return
	}
	w.Header().Set("Connection", "close")
	if isTimeout(err) {
		bodySlow.write(w)
		return
	}
	bodyBroken.write(w)
}
