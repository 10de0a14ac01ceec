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
	return []string{nginxName, againName, floorName, fasthttpName, proxyName, soleName, stdName, autoName}
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
	say("Targets of the gateway, for `"+strings.Replace(weir, ",", " serve", 1)+"`", []string{"", "aim", "here", ""}, aims)
	requests := []string{"", "CPU, µs a request", "× nginx", "requests/s", "of its core", "p99, ms", "× nginx's"}
	for _, c := range []struct{ name, title string }{
		{servedCase, fmt.Sprintf("Served, a limiter by address; %d connections without pauses", connections)},
		{steadyCase, fmt.Sprintf("The same at %s requests a second for each contestant, on %d connections", page.Digits(r.Rate), connections)},
		{sessionCase, "Served, a limiter by session, one that was seen before"},
		{keyCase, "Served, a limiter by API key in X-Api-Key, one that was seen before"},
		{refusedCase, "Refused with 429"},
		{tlsCase, "Served by TLS 1.3, on kept connections"},
	} {
		say(c.title, requests, r.requestRows(c.name))
	}
	for _, c := range []struct{ name, title string }{
		{settledCase, "An answer tells in a field what its request has cost"},
		{jsonCase, "It tells that at the end of 4 KiB of JSON"},
	} {
		say(c.title, []string{"", "CPU, µs a request", "× unread", "requests/s", "of its core", "p99, ms", "× unread"}, r.settledRows(c.name))
	}
	say("Served, by what the server reports of it", []string{"", "CPU, µs a request", "× the plain log", "requests/s", "of its core", "p99, ms", "× the plain log"},
		r.rowsBeside(observedCase, plainName, []string{silentName, plainName, observedName}))
	transfers := []string{"", "MiB/s", "× nginx", "CPU, µs a MiB", "× nginx's", "of its core", "peak, MiB resident"}
	say(fmt.Sprintf("Bodies of 10 MiB to the upstream, %d at a time", bodyConnections), transfers, r.transferRows(uploadCase))
	say(fmt.Sprintf("Bodies of 10 MiB from the upstream, %d at a time", bodyConnections), transfers, r.transferRows(downloadCase))
	say(fmt.Sprintf("%s idle connections, each of which was served once", page.Digits(float64(r.Idle))),
		[]string{"", "MiB resident before", "with all of them", "KiB each"}, r.idleRows())
	for _, name := range slices.Sorted(maps.Keys(r.Problems)) {
		fmt.Fprintf(&b, "Not measured: %s: %s\n\n", name, r.Problems[name])
	}
	fmt.Fprintf(&b, "Medians (quartiles) of %d alternating rounds of %g s; ratios are the median of the rounds' own. %s.\n", r.Rounds, r.Seconds, r.Machine)
	return b.String()
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

func (r *results) idleRows() (rows [][]string) {
	for _, c := range names() {
		if len(r.of(idleCase, heldFigure, c)) == 0 {
			continue
		}
		rows = append(rows, []string{bold(c), one(r.of(idleCase, restFigure, c)), page.Spread(r.of(idleCase, heldFigure, c)), one(r.of(idleCase, eachFigure, c))})
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

// aims compares the aims of the default engine with its results, and returns the engine's name. It
// leaves out what was not measured.
func (r *results) aims() (weir string, rows [][]string) {
	weir = soleName
	for _, name := range []string{stdName, autoName} { // the default is the last
		if r.has(name) {
			weir = name
		}
	}
	judge := func(what, aim, here string, met bool) {
		verdict := "met"
		if !met {
			verdict = "**not met**"
		}
		rows = append(rows, []string{what, aim, here, verdict})
	}
	atMost := func(what, name, figure string, limit float64) {
		if v, ok := ratio(r.of(name, figure, weir), r.of(name, figure, nginxName)); ok {
			judge(what, fmt.Sprintf("at most %.4g× nginx's", limit), fmt.Sprintf("%.3g×", v), v <= limit)
		}
	}
	atLeast := func(what, aim, name, figure, over, under string, limit float64) {
		if v, ok := ratio(r.of(name, figure, over), r.of(name, figure, under)); ok {
			judge(what, aim, fmt.Sprintf("%.3g×", v), v >= limit)
		}
	}
	atMost("CPU of a request that is served, by address", servedCase, cpuFigure, 1.15)
	atLeast("the same, relative to ReverseProxy", "ReverseProxy's at least 3× as much", servedCase, cpuFigure, proxyName, weir, 3)
	atMost("CPU of a request of a session seen before", sessionCase, cpuFigure, 1.25)
	atMost("CPU of a request with an API key in a field", keyCase, cpuFigure, 1.15)
	atMost("CPU of a refusal", refusedCase, cpuFigure, 1.3)
	atMost(fmt.Sprintf("p99 at %d connections without pauses", connections), servedCase, p99Figure, 1.3)
	atMost(fmt.Sprintf("the same at %s requests a second for each", page.Digits(r.Rate)), steadyCase, p99Figure, 1.3)
	atMost("CPU of a request by TLS, kept alive", tlsCase, cpuFigure, 1.3)
	atLeast("bodies of 10 MiB to the upstream", "at least 0.9× nginx's throughput", uploadCase, mibFigure, weir, nginxName, 0.9)
	atLeast("bodies of 10 MiB from the upstream", "at least 0.9× nginx's throughput", downloadCase, mibFigure, weir, nginxName, 0.9)
	if xs := r.of(idleCase, heldFigure, weir); len(xs) > 0 {
		judge(fmt.Sprintf("%s idle connections", page.Digits(float64(r.Idle))), "under 100 MiB resident", page.Digits(page.Median(xs)), page.Median(xs) < 100)
	}
	ofUnread := func(what, name string, limit float64) {
		if v, ok := ratio(r.of(name, cpuFigure, settledName), r.of(name, cpuFigure, unsettledName)); ok {
			judge(what, fmt.Sprintf("at most %.4g× as if it were unread", limit), fmt.Sprintf("%.3g×", v), v <= limit)
		}
	}
	ofUnread("CPU of a request whose answer tells its cost in a field", settledCase, 1.1)
	ofUnread("the same in 4 KiB of JSON", jsonCase, 1.25)
	if v, ok := ratio(r.of(observedCase, cpuFigure, observedName), r.of(observedCase, cpuFigure, plainName)); ok {
		judge("CPU of a request with every field in the log, metrics and dashboard", "at most 1.05× the plain log", fmt.Sprintf("%.3g×", v), v <= 1.05)
	}
	for i := range rows {
		rows[i][0] = strings.ToUpper(rows[i][0][:1]) + rows[i][0][1:]
	}
	return weir, rows
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
