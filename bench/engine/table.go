package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirlimit/weir/bench/page"
)

// names returns all contestants that may be in a table, in order.
func names() []string {
	return []string{nginxName, againName, haproxyName, floorName, fasthttpName, proxyName, soleName, stdName, autoName}
}

// String returns all tables in Markdown.
func (r *results) String() string {
	var b strings.Builder
	say := func(title string, head []string, rows [][]string) {
		if len(rows) > 0 {
			fmt.Fprintf(&b, "%s:\n\n%s\n", title, page.Table(head, rows))
		}
	}
	weir, aims := r.aims()
	say("Targets of the gateway, for `"+strings.Replace(weir, ",", " serve", 1)+"`", []string{"", "aim", "here", "without access logs", ""}, aims)
	requests := []string{"", "CPU, µs a request", "× nginx", "requests/s", "of its core", "p99, ms", "× nginx's"}
	for _, c := range requestTitles(r.Rate) {
		say(c.title, requests, r.requestRows(c.name))
		say(c.title+", without access logs", requests, r.requestRows(c.name+silentSuffix))
	}
	rates := []string{"", "requests/s", "× nginx", "CPU, µs a request", "of its core"}
	for _, c := range []struct{ name, title string }{
		{rateCase, "HTTP/1.1"},
		{rateTLS, "HTTP/1.1 over TLS 1.3"},
		{rateHTTP2, "HTTP/2 over TLS 1.3"},
	} {
		title := fmt.Sprintf("The highest rate with p99 below %d ms, requests sent on time, %s", keptP99.Milliseconds(), c.title)
		say(title, rates, r.rateRows(c.name))
		say(title+", without access logs", rates, r.rateRows(c.name+silentSuffix))
	}
	for _, c := range []struct{ name, title string }{
		{settledCase, "An answer has in a field what its request has cost"},
		{jsonCase, "It has that at the end of 4 KiB of JSON"},
	} {
		say(c.title, []string{"", "CPU, µs a request", "× unread", "requests/s", "of its core", "p99, ms", "× unread"}, r.settledRows(c.name))
	}
	say("Served, by what the server reports of it", []string{"", "CPU, µs a request", "× the plain log", "requests/s", "of its core", "p99, ms", "× the plain log"},
		r.rowsBeside(observedCase, plainName, []string{silentName, plainName, observedName}))
	transfers := []string{"", "MiB/s", "× nginx", "CPU, µs a MiB", "× nginx's", "of its core", "peak, MiB resident"}
	for _, c := range []struct{ name, title string }{
		{uploadCase, "to the upstream"},
		{downloadCase, "from the upstream"},
		{http2Upload, "to the upstream by HTTP/2 over TLS 1.3"},
		{http2Download, "from the upstream by HTTP/2 over TLS 1.3"},
	} {
		say(fmt.Sprintf("Bodies of 10 MiB %s, %d at a time", c.title, bodyConnections), transfers, r.transferRows(c.name))
	}
	for _, c := range []struct{ name, title string }{{idleCase, ""}, {http2Idle, " by HTTP/2 over TLS 1.3"}} {
		say(fmt.Sprintf("%s idle connections%s, each of which was served once", page.Digits(float64(r.Idle)), c.title),
			[]string{"", "MiB resident before", "with all of them", "KiB each"}, r.idleRows(c.name))
	}
	say(fmt.Sprintf("New %s of %d callers", dialsTitle, connections), []string{"", "with access logs", "without"}, r.dialRows())
	for _, name := range slices.Sorted(maps.Keys(r.Problems)) {
		fmt.Fprintf(&b, "Not measured: %s: %s\n\n", name, r.Problems[name])
	}
	fmt.Fprintf(&b, "Medians (quartiles) of %d alternating rounds of %g s; ratios are the median of the rounds' own. %s.\n", r.Rounds, r.Seconds, r.Machine)
	return b.String()
}

// requestTitles returns the cases with small requests, in the order of the tables.
func requestTitles(rate float64) []struct{ name, title string } {
	return []struct{ name, title string }{
		{servedCase, fmt.Sprintf("Served, a limiter by address; %d connections without pauses", connections)},
		{steadyCase, fmt.Sprintf("Served at %s requests a second for each contestant, on %d connections", page.Digits(rate), connections)},
		{sessionCase, "Served, a limiter by session, one that was seen before"},
		{keyCase, "Served, a limiter by API key in X-Api-Key, one that was seen before"},
		{refusedCase, "Refused with 429"},
		{tlsCase, "Served by TLS 1.3, on kept connections"},
		{http2Case, fmt.Sprintf("Served by HTTP/2 over TLS 1.3; %d connections of %d streams without pauses", http2Connections, http2Streams)},
		{http2Session, "Served by HTTP/2 over TLS 1.3, a limiter by session, one that was seen before"},
		{http2Refused, "Refused with 429 by HTTP/2 over TLS 1.3"},
	}
}

func (r *results) requestRows(name string) [][]string {
	return r.rowsBeside(name, nginxName, names())
}

func (r *results) settledRows(name string) [][]string {
	return r.rowsBeside(name, unsettledName, []string{unsettledName, settledName})
}

// rowsBeside returns the rows of contestants, with their figures as multiples of one's.
func (r *results) rowsBeside(name, base string, contestants []string) (rows [][]string) {
	for _, c := range contestants {
		if len(r.of(name, cpuFigure, c)) == 0 {
			continue
		}
		rows = append(rows, []string{bold(c), page.Spread(r.of(name, cpuFigure, c)), r.times(name, cpuFigure, c, base), one(r.of(name, rateFigure, c)),
			percent(r.of(name, busyFigure, c)), page.Spread(r.of(name, p99Figure, c)), r.times(name, p99Figure, c, base)})
	}
	return rows
}

func (r *results) transferRows(name string) (rows [][]string) {
	for _, c := range names() {
		if len(r.of(name, mibFigure, c)) == 0 {
			continue
		}
		rows = append(rows, []string{bold(c), page.Spread(r.of(name, mibFigure, c)), r.times(name, mibFigure, c, nginxName), one(r.of(name, cpuFigure, c)),
			r.times(name, cpuFigure, c, nginxName), percent(r.of(name, busyFigure, c)), page.Digits(slices.Max(r.of(name, peakFigure, c)))})
	}
	return rows
}

// rateRows returns the rows of a search for the highest rate.
func (r *results) rateRows(name string) (rows [][]string) {
	for _, c := range names() {
		if len(r.of(name, keptFigure, c)) == 0 {
			continue
		}
		rows = append(rows, []string{bold(c), page.Spread(r.of(name, keptFigure, c)), r.times(name, keptFigure, c, nginxName), one(r.of(name, cpuFigure, c)),
			percent(r.of(name, busyFigure, c))})
	}
	return rows
}

func (r *results) idleRows(name string) (rows [][]string) {
	for _, c := range names() {
		if len(r.of(name, heldFigure, c)) == 0 {
			continue
		}
		rows = append(rows, []string{bold(c), one(r.of(name, restFigure, c)), page.Spread(r.of(name, heldFigure, c)), one(r.of(name, eachFigure, c))})
	}
	return rows
}

func (r *results) dialRows() (rows [][]string) {
	for _, c := range names() {
		if len(r.of(servedCase, dialsFigure, c)) > 0 {
			rows = append(rows, []string{bold(c), one(r.of(servedCase, dialsFigure, c)), one(r.of(servedCase+silentSuffix, dialsFigure, c))})
		}
	}
	return rows
}

// times returns a contestant's figure as a multiple of another's, the base.
func (r *results) times(name, figure, contestant, base string) string {
	v, ok := ratio(r.of(name, figure, contestant), r.of(name, figure, base))
	if !ok || contestant == base {
		return page.None
	}
	return fmt.Sprintf("%.2f", v)
}

// has reports whether a contestant was measured.
func (r *results) has(contestant string) bool {
	for _, of := range r.Samples {
		for _, samples := range of {
			if len(samples[contestant]) > 0 {
				return true
			}
		}
	}
	return false
}

func bold(name string) string {
	if strings.HasPrefix(name, "weir") {
		return "**" + name + "**"
	}
	return name
}

func one(xs []float64) string {
	if len(xs) == 0 {
		return page.None
	}
	return page.Digits(page.Median(xs))
}

func percent(xs []float64) string {
	if len(xs) == 0 {
		return page.None
	}
	return fmt.Sprintf("%.0f %%", page.Median(xs))
}
