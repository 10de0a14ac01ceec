package main

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
)

// A benchCase is one measurement of all contestants.
type benchCase struct {
	name   string
	setup  func(w *world) setup
	left   []string                    // contestants that do not take part
	own    func(w *world) []contestant // who takes part instead of the chosen ones; nil: those
	fresh  bool                        // each turn needs a new process
	long   bool                        // -quick leaves it out, unless it is named
	rounds int                         // at most so many; 0: as many as others
	turn   func(ctx context.Context, p plan, w *world, s *server) (figures, error)
}

// The names of cases. Those that are also measured without access logs have another one with
// silentSuffix then.
const (
	servedCase    = "served"
	steadyCase    = "steady"
	sessionCase   = "session"
	keyCase       = "key"
	refusedCase   = "refused"
	tlsCase       = "tls"
	http2Case     = "http2"
	http2Session  = "http2-session"
	http2Refused  = "http2-refused"
	rateCase      = "rate"
	rateTLS       = "rate-tls"
	rateHTTP2     = "rate-http2"
	uploadCase    = "upload"
	downloadCase  = "download"
	http2Upload   = "http2-upload"
	http2Download = "http2-download"
	idleCase      = "idle"
	http2Idle     = "http2-idle"
	settledCase   = "settled"
	jsonCase      = "settled-json"
	observedCase  = "observed"

	silentSuffix = "-silent"
)

// The connections of a search for a rate, and with HTTP/2 the streams of each at a time: so many
// that a request waits for one only if the answers take too long anyway.
const (
	rateConnections      = 1024
	rateHTTP2Connections = 16
	rateHTTP2Streams     = rateConnections / rateHTTP2Connections
	rateRounds           = 3 // a search makes some ten trials
)

// notHTTP2 are the contestants that have no HTTP/2.
var notHTTP2 = []string{floorName, fasthttpName}

// allBare are the contestants that no aim refers to, except for the errors of ratios.
var allBare = []string{floorName, fasthttpName, proxyName}

func cases() []benchCase {
	plain := func(w *world) setup { return setup{limit: plenty, by: "ip", upstream: w.small} }
	large := func(w *world) setup { return setup{limit: plenty, by: "ip", upstream: w.bodies} }
	both := func(c benchCase) []benchCase { return []benchCase{c, silent(c)} }
	idle := func(how protocol) func(ctx context.Context, p plan, w *world, s *server) (figures, error) {
		return func(ctx context.Context, p plan, w *world, s *server) (figures, error) {
			how.conns, how.streams, how.trust = p.idle, 1, w.cert
			return holdIdle(ctx, s, how)
		}
	}
	return slices.Concat(
		both(benchCase{name: servedCase, setup: plain, turn: turnOfServed}),
		[]benchCase{{name: steadyCase, long: true, setup: plain, turn: func(ctx context.Context, p plan, _ *world, s *server) (figures, error) {
			return atRate(ctx, s, p.rate, p.length)
		}}},
		both(benchCase{name: sessionCase, left: []string{floorName}, turn: turnOfSession,
			setup: func(w *world) setup { return setup{limit: plenty, by: "session or ip", upstream: w.small} }}),
		[]benchCase{{name: keyCase, left: []string{floorName},
			setup: func(w *world) setup { return setup{limit: plenty, by: byKey, upstream: w.small} },
			turn: func(ctx context.Context, p plan, _ *world, s *server) (figures, error) {
				return drive(ctx, s, "http", keyField, served, p.length)
			}}},
		both(benchCase{name: refusedCase, left: []string{floorName, proxyName},
			setup: func(w *world) setup { return setup{limit: 1, by: "ip", upstream: w.small} },
			turn: func(ctx context.Context, p plan, _ *world, s *server) (figures, error) {
				return drive(ctx, s, "http", "", refused, p.length)
			}}),
		both(benchCase{name: tlsCase, left: []string{floorName},
			setup: func(w *world) setup { return setup{limit: plenty, by: "ip", upstream: w.small, tls: true} },
			turn: func(ctx context.Context, p plan, _ *world, s *server) (figures, error) {
				return drive(ctx, s, "https", "", served, p.length)
			}}),
		both(byHTTP2(http2Case, plenty, "ip", nil, served)),
		both(byHTTP2(http2Session, plenty, "session or ip", authorization, served)),
		both(byHTTP2(http2Refused, 1, "ip", nil, refused)),
		both(rateOf(rateCase, protocol{conns: rateConnections, streams: 1})),
		both(rateOf(rateTLS, protocol{tls: true, conns: rateConnections, streams: 1})),
		both(rateOf(rateHTTP2, protocol{tls: true, http2: true, conns: rateHTTP2Connections, streams: rateHTTP2Streams})),
		[]benchCase{
			{name: uploadCase, setup: large, turn: func(ctx context.Context, p plan, w *world, s *server) (figures, error) {
				return bodies(ctx, s, w.body, upload, p.length)
			}},
			{name: downloadCase, setup: large, turn: func(ctx context.Context, p plan, w *world, s *server) (figures, error) {
				return bodies(ctx, s, w.body, download, p.length)
			}},
			{name: http2Upload, setup: overHTTP2(large), left: notHTTP2, turn: func(ctx context.Context, p plan, w *world, s *server) (figures, error) {
				return http2Bodies(ctx, s, uploadPath, p.length, "-d", w.body)
			}},
			{name: http2Download, setup: overHTTP2(large), left: notHTTP2, turn: func(ctx context.Context, p plan, _ *world, s *server) (figures, error) {
				return http2Bodies(ctx, s, largePath, p.length)
			}},
			{name: idleCase, setup: plain, left: []string{floorName}, fresh: true, turn: idle(protocol{})},
			// a handshake for each connection and turn
			{name: http2Idle, setup: overHTTP2(plain), left: notHTTP2, fresh: true, long: true, rounds: 3, turn: idle(protocol{tls: true, http2: true})},
			{name: settledCase, own: settledContestants(toldByField), turn: turnOfSmall,
				setup: func(w *world) setup { return setup{limit: plenty, by: "ip", cost: costByField, upstream: w.costs} }},
			{name: jsonCase, own: settledContestants(toldByBody), turn: turnOfSmall,
				setup: func(w *world) setup { return setup{limit: plenty, by: "ip", cost: costByBody, upstream: w.json} }},
			{name: observedCase, setup: plain, own: observedContestants, turn: func(ctx context.Context, p plan, _ *world, s *server) (figures, error) {
				return drive(ctx, s, "http", observedFields, served, p.length)
			}},
		})
}

// silent returns a case without access logs. The bare contestants are left out: they never write
// one.
func silent(c benchCase) benchCase {
	loud := c.setup
	c.name += silentSuffix
	c.long = true
	c.left = slices.Concat(c.left, allBare)
	c.setup = func(w *world) setup {
		s := loud(w)
		s.silent = true
		return s
	}
	return c
}

// overHTTP2 returns a setup with HTTP/2 over TLS.
func overHTTP2(of func(w *world) setup) func(w *world) setup {
	return func(w *world) setup {
		s := of(w)
		s.tls, s.http2 = true, true
		return s
	}
}

// rateOf returns the case that looks for the highest rate with a small p99.
func rateOf(name string, how protocol) benchCase {
	return benchCase{name: name, left: allBare, long: true, rounds: rateRounds,
		setup: func(w *world) setup {
			return setup{limit: plenty, by: "ip", upstream: w.small, tls: how.tls, http2: how.http2}
		},
		turn: func(ctx context.Context, p plan, w *world, s *server) (figures, error) {
			return keptRate(ctx, w, s, how, p.length)
		}}
}

// byHTTP2 returns a case with HTTP/2 over TLS. field returns one more field of the request; nil: it
// has none.
func byHTTP2(name string, limit int64, by string, field func(*world) string, want outcome) benchCase {
	left := notHTTP2
	if want == refused || field != nil {
		left = allBare
	}
	return benchCase{name: name, left: left,
		setup: func(w *world) setup { return setup{limit: limit, by: by, upstream: w.small, tls: true, http2: true} },
		turn: func(ctx context.Context, p plan, w *world, s *server) (figures, error) {
			line := ""
			if field != nil {
				line = field(w)
			}
			return driveHTTP2(ctx, w, s, line, want, p.length)
		}}
}

// turnOfServed sends small requests that are served, and counts connections to the upstream.
func turnOfServed(ctx context.Context, p plan, w *world, s *server) (figures, error) {
	return dialsOf(w, func() (figures, error) { return turnOfSmall(ctx, p, w, s) })
}

// turnOfSmall sends small requests that are served.
func turnOfSmall(ctx context.Context, p plan, _ *world, s *server) (figures, error) {
	return drive(ctx, s, "http", "", served, p.length)
}

// turnOfSession sends the same verified session with every request.
func turnOfSession(ctx context.Context, p plan, w *world, s *server) (figures, error) {
	return drive(ctx, s, "http", authorization(w), served, p.length)
}

func authorization(w *world) string { return "Authorization: Bearer " + w.session }

// prove checks that Weir accepts the credential of a case, if that has one: otherwise it would
// measure an address.
func (c *benchCase) prove(w *world, s *server) error {
	path, field := "", ""
	switch strings.TrimSuffix(c.name, silentSuffix) {
	case sessionCase:
		path, field = "/session/proof", authorization(w)
	case keyCase:
		path, field = "/key/proof", keyField
	default:
		return nil
	}
	with, err := ask(s.address, path, field)
	if err != nil {
		return err
	}
	without, err := ask(s.address, path, "")
	if err != nil {
		return err
	}
	if with != 200 || without != 401 {
		return fmt.Errorf("the credential makes no difference: with it the answer is %d, without %d", with, without)
	}
	return nil
}

func caseNames() (names []string) {
	for _, c := range cases() {
		names = append(names, c.name)
	}
	return names
}

// chooseCases returns the cases of a comma-separated list of names and patterns, as of path.Match.
// Each is chosen once.
func chooseCases(list string) (chosen []benchCase, err error) {
	for pattern := range strings.SplitSeq(list, ",") {
		found := false
		for _, c := range cases() {
			if ok, err := path.Match(pattern, c.name); err != nil {
				return nil, fmt.Errorf("choose cases: read %q: %w", pattern, err)
			} else if !ok {
				continue
			}
			found = true
			if !slices.ContainsFunc(chosen, func(o benchCase) bool { return o.name == c.name }) {
				chosen = append(chosen, c)
			}
		}
		if !found {
			return nil, fmt.Errorf("choose cases: %q is not one of %s", pattern, strings.Join(caseNames(), ","))
		}
	}
	return chosen, nil
}
