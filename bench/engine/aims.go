package main

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/bench/page"
)

// An aim is what one figure of Weir should be beside another contestant's in the same round.
type aim struct {
	what    string
	name    string // of the case; it also holds without access logs, if that is measured
	figure  string
	beside  string  // the contestant
	most    float64 // times the other's; 0: there is no such bound
	least   float64 // times the other's; 0: there is no such bound
	inverse bool    // the other's figure as a multiple of Weir's
}

// allAims returns the aims that are ratios.
func allAims() (all []aim) {
	for _, c := range []struct {
		name, what string
		cpu        float64
	}{
		{servedCase, "a request that is served", 1},
		{sessionCase, "a request of a session seen before", 1.1},
		{refusedCase, "a refusal", 1.05},
		{tlsCase, "a request by TLS, kept alive", 0.95},
		{http2Case, "a request by HTTP/2 over TLS", 1.3},
		{http2Session, "the same, of a session seen before", 1.3},
		{http2Refused, "a refusal by HTTP/2 over TLS", 1.3},
	} {
		all = append(all, aim{what: "CPU of " + c.what, name: c.name, figure: cpuFigure, beside: nginxName, most: c.cpu})
		if strings.HasPrefix(c.name, http2Case) {
			all = append(all, aim{what: "the same, relative to net/http", name: c.name, figure: cpuFigure, beside: stdName, least: 3, inverse: true})
		} else {
			all = append(all, aim{what: "the same, relative to HAProxy", name: c.name, figure: cpuFigure, beside: haproxyName, most: 1})
		}
		all = append(all, aim{what: "its p99, callers without pauses", name: c.name, figure: p99Figure, beside: nginxName, most: 1.15})
	}
	return append(all,
		aim{what: "CPU of a request with an API key in a field", name: keyCase, figure: cpuFigure, beside: nginxName, most: 1.15},
		aim{what: "p99 of requests at the same rate for each", name: steadyCase, figure: p99Figure, beside: nginxName, most: 1.3},
		aim{what: "rate kept with a small p99, HTTP/1.1", name: rateCase, figure: keptFigure, beside: nginxName, least: 1},
		aim{what: "the same by TLS", name: rateTLS, figure: keptFigure, beside: nginxName, least: 1},
		aim{what: "the same by HTTP/2 over TLS", name: rateHTTP2, figure: keptFigure, beside: nginxName, least: 1},
		aim{what: "bodies of 10 MiB to the upstream", name: uploadCase, figure: mibFigure, beside: nginxName, least: 1},
		aim{what: "bodies of 10 MiB from the upstream", name: downloadCase, figure: mibFigure, beside: nginxName, least: 1},
		aim{what: "bodies of 10 MiB to the upstream, HTTP/2 over TLS", name: http2Upload, figure: mibFigure, beside: nginxName, least: 1},
		aim{what: "bodies of 10 MiB from the upstream, HTTP/2 over TLS", name: http2Download, figure: mibFigure, beside: nginxName, least: 1},
		aim{what: "CPU of a request whose answer has its cost in a field", name: settledCase, figure: cpuFigure, beside: unsettledName, most: 1.1},
		aim{what: "the same in 4 KiB of JSON", name: jsonCase, figure: cpuFigure, beside: unsettledName, most: 1.25},
		aim{what: "CPU of a request with every field in the log, metrics and dashboard", name: observedCase, figure: cpuFigure, beside: plainName, most: 1.05},
	)
}

// others are the contestants whose aims are not the default engine's.
var others = map[string]string{settledCase: settledName, jsonCase: settledName, observedCase: observedName}

// possessive are the names of contestants in the tables of aims.
var possessive = map[string]string{nginxName: "nginx's", haproxyName: "HAProxy's", stdName: "net/http's",
	unsettledName: "as if it were unread", plainName: "the plain log's"}

// text returns the aim in words.
func (a aim) text() string {
	switch {
	case a.inverse:
		return fmt.Sprintf("%s at least %g× as much", possessive[a.beside], a.least)
	case a.least > 0:
		return fmt.Sprintf("at least %g× %s", a.least, possessive[a.beside])
	}
	return fmt.Sprintf("at most %g× %s", a.most, possessive[a.beside])
}

// judge compares a figure with its aim. It reports false if one of the two was not measured.
func (a aim) judge(r *results, name, weir string) (here string, met, ok bool) {
	v, ok := ratio(r.of(name, a.figure, weir), r.of(name, a.figure, a.beside))
	if a.inverse {
		v, ok = ratio(r.of(name, a.figure, a.beside), r.of(name, a.figure, weir))
	}
	return fmt.Sprintf("%.3g×", v), ok && (a.least == 0 || v >= a.least) && (a.most == 0 || v <= a.most), ok
}

// aims compares the aims of the default engine with its results, and returns the engine's name. It
// leaves out what was not measured.
func (r *results) aims() (weir string, rows [][]string) {
	weir = soleName
	for _, name := range []string{stdName, autoName} { // the default is the last
		if r.has(name) {
			weir = name
		}
	}
	row := func(what, aim, loud, silent string, met bool) {
		verdict := "met"
		if !met {
			verdict = "**not met**"
		}
		rows = append(rows, []string{strings.ToUpper(what[:1]) + what[1:], aim, loud, silent, verdict})
	}
	for _, a := range allAims() {
		who := weir
		if own, ok := others[a.name]; ok {
			who = own
		}
		if a.beside == who {
			continue
		}
		loud, loudMet, ok := a.judge(r, a.name, who)
		silent, silentMet, silentToo := a.judge(r, a.name+silentSuffix, who)
		if !ok {
			loud, loudMet = page.None, true
		}
		if !silentToo {
			silent, silentMet = page.None, true
		}
		if ok || silentToo {
			row(a.what, a.text(), loud, silent, loudMet && silentMet)
		}
	}
	for _, c := range []struct {
		what, name string
		most       float64 // MiB resident
	}{
		{"idle connections", idleCase, 60},
		{"idle connections, HTTP/2 over TLS", http2Idle, 200},
	} {
		if xs := r.of(c.name, heldFigure, weir); len(xs) > 0 {
			row(page.Digits(float64(r.Idle))+" "+c.what, fmt.Sprintf("at most %g MiB resident", c.most), page.Digits(page.Median(xs)), page.None, page.Median(xs) <= c.most)
		}
	}
	ours, theirs := r.of(servedCase, dialsFigure, weir), r.of(servedCase, dialsFigure, nginxName)
	if len(ours) > 0 && len(theirs) > 0 {
		a, b := page.Median(ours), page.Median(theirs)
		row(dialsTitle, fmt.Sprintf("at most nginx's %s", page.Digits(b)), page.Digits(a), page.None, a <= b)
	}
	return weir, rows
}

// dialsTitle is used in two tables.
const dialsTitle = "connections to the upstream for 10,000 requests"
