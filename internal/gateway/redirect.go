package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/gateway/rules"
)

// A Redirect is another listener of a gateway with TLS. It answers each request in clear text with
// the https URL of the same host, path and query (308, so that methods and bodies are kept), and
// the challenges of an authority (HTTP-01). Nothing that it gets is counted, forwarded or in the
// access log. Make one with Gateway.Redirect.
type Redirect struct {
	gateway *Gateway
	suffix  string // of the host in URLs: a colon and the port, or nothing
}

// Redirect returns a listener's handler that sends clients to a port.
func (g *Gateway) Redirect(port uint16) (*Redirect, error) {
	if g.certs == nil {
		return nil, errors.New("a redirect to https needs a certificate: give --tls-cert and --tls-key, or --acme")
	}
	r := &Redirect{gateway: g}
	if port != httpsPort {
		r.suffix = ":" + strconv.Itoa(int(port))
	}
	return r, nil
}

// httpsPort is the port of https URLs that name none.
const httpsPort = 443

// Serve accepts connections from l until ctx ends, and then lets the requests under way finish, for
// as long as one may take. It closes l. The error is nil after that, and otherwise why it could not
// serve.
func (r *Redirect) Serve(ctx context.Context, l net.Listener) error {
	limits := &r.gateway.rules.Limits
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	only1 := new(http.Protocols)
	only1.SetHTTP1(true)
	server := &http.Server{
		Handler: r, Protocols: only1, DisableGeneralOptionsHandler: true,
		// A client that is slow with so little is stalled.
		ReadTimeout: limits.Header, WriteTimeout: limits.Header, MaxHeaderBytes: limits.HeaderBytes,
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(r.gateway.rules.Log.Handler(), slog.LevelDebug),
	}
	server.SetKeepAlivesEnabled(false) // the client goes on elsewhere
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(r.gateway.proxied(l)) }()
	select {
	case err := <-ended:
		return errors.Join(fmt.Errorf("serve the redirect to https at %s: %w", l.Addr(), err), server.Close())
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(base, 2*limits.Header)
	defer cancel()
	_ = server.Shutdown(patience)
	_ = server.Close()
	<-ended
	return nil
}

// ServeHTTP implements http.Handler.
func (r *Redirect) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	g := r.gateway
	if g.options.ACME != nil && g.options.ACME.AnswerChallenge(w, q) {
		g.redirects.challenges.Add(1)
		return
	}
	location, rejected := r.location(q)
	if rejected != nil {
		g.redirects.rejected.Add(1)
		fields, body := g.rules.Append(nil, rejected, q.Header["Accept"])
		write(w, rejected.Status, fields, body)
		return
	}
	g.redirects.redirected.Add(1)
	write(w, http.StatusPermanentRedirect, []answer.Field{{Name: "Location", Value: location}}, nil)
}

func write(w http.ResponseWriter, status int, fields []answer.Field, body []byte) {
	for _, f := range fields {
		w.Header().Add(f.Name, f.Value)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have gone
}

// location returns where a request is sent to, or the answer that rejects it: a host that is none,
// or that has no certificate or no backend, and a target that is not a path.
func (r *Redirect) location(q *http.Request) (string, *rules.Answer) {
	g := r.gateway
	host, ok := weir.AppendHost(nil, q.Host)
	if !ok {
		return "", &noHost
	}
	if !g.certs.isFor(string(host)) || !g.rules.IsServed(string(host)) {
		return "", &rules.Misdirected
	}
	target := q.RequestURI
	// the absolute form
	if len(target) >= len(scheme) && strings.EqualFold(target[:len(scheme)], scheme) {
		target = target[len(scheme):]
		at := strings.IndexAny(target, "/?")
		if at < 0 {
			at = len(target)
		}
		if target = target[at:]; target == "" || target[0] == '?' {
			target = "/" + target
		}
	}
	if target == "" || target[0] != '/' {
		return "", &noPath
	}
	return "https://" + string(host) + r.suffix + target, nil
}

const scheme = "http://"

// The answers to requests that cannot be redirected.
var (
	noHost = rules.Answer{Status: http.StatusBadRequest, Code: "invalid_request",
		Message: "The Host field names no host. Send the name of the service, such as api.example.com."}
	noPath = rules.Answer{Status: http.StatusBadRequest, Code: "invalid_request",
		Message: "This address only leads to https, and the target of the request is not a path."}
)

// A redirectTally counts what a Redirect answers.
type redirectTally struct{ redirected, challenges, rejected atomic.Int64 }

// Redirects returns how many requests redirects have answered, by how: redirected, challenge or
// rejected.
func (g *Gateway) Redirects() map[string]int64 {
	t := &g.redirects
	return map[string]int64{"redirected": t.redirected.Load(), "challenge": t.challenges.Load(), "rejected": t.rejected.Load()}
}
