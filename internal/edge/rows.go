package edge

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weirlimit/weir"
)

// A Row is one line of what a server reports about itself at the start.
type Row struct{ Name, Text string }

// Rows returns what the server reports at the start: where it listens, and what it is made of. They
// contain the operator's token if this start has made it and Config.ShowToken is set.
func (s *Server) Rows() []Row { return s.rows }

// describe returns the rows of all parts, in the order in which they are printed.
func (s *Server) describe(operators *adminSide, h *hooks) []Row {
	backend, credentials := s.backend.rows()
	url := s.URL()
	if s.config.rlsAlone() {
		url, credentials = strings.Replace(url, "http", "grpc", 1), nil
	}
	all := []Row{s.listeners.row(url)}
	if s.check != nil {
		all = append(all, s.check.row(s.config))
	}
	if s.rls != nil {
		all = append(all, s.rls.rows()...)
	}
	if s.redirect != nil {
		all = append(all, s.redirect.row())
	}
	if s.acme != nil {
		all = append(all, s.config.ACME.row())
	}
	if !s.config.rlsAlone() {
		all = append(all, s.policy.rows()...)
	}
	all = append(all, Row{"store", s.counter.store.line})
	all = append(all, operators.rows...)
	all = append(all, backend)
	if !s.config.asksAlone() {
		all = append(all, s.public.row(s.config))
	}
	all = append(append(all, credentials...), certificateRows(s.config)...)
	all = append(all, h.rows...)
	if s.config.Demo {
		all = append(all, demoRow())
	}
	return all
}

// URL returns a URL at which this machine reaches the public listener.
func (s *Server) URL() string {
	secure := s.config.secure()
	if s.check != nil && s.config.asksAlone() {
		secure = s.config.securesProxies(s.Addr())
	}
	return reachable(s.Addr(), secure)
}

// Addr returns the address of the public listener.
func (s *Server) Addr() net.Addr { return s.listeners.public.Addr() }

// Decider returns the Decider of the policy in force.
func (s *Server) Decider() *weir.Decider { return s.counter.Decider }

// Handler returns the handler of the public listener, for tests and for other listeners.
func (s *Server) Handler() http.Handler { return s.public.gateway.Handler() }

// Workspace returns the name of a workspace of the sample backend; empty before an upstream.
func (s *Server) Workspace() string { return s.backend.workspace }

// reachable returns a URL at which this machine reaches a listener.
func reachable(addr net.Addr, secure bool) string {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	if addr.Network() == "unix" {
		return "unix:" + addr.String()
	}
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return scheme + "://" + addr.String()
	}
	if at.Addr().IsUnspecified() {
		at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())
	}
	return scheme + "://" + at.String()
}
