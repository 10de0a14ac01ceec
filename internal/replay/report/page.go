package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/replay"
	"github.com/weirlimit/weir/internal/uplot"
)

//go:embed page.html
var pageDocument string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// mostPoints is how many points a chart has at most: as many as can be told apart, whatever the log's length.
const mostPoints = 500

// HTML writes r as one document that asks for nothing else: style, script and figures are inside, and its content policy lets just
// these run. The tables in it need no script; the charts do. Verdicts, which may be none, are those of the gates.
func HTML(w io.Writer, r *replay.Report, verdicts []Verdict) error {
	v := newView(r)
	v.Verdicts = verdicts
	data, err := json.Marshal(v.charts) // in which < > & are escaped, so that no name ends the element
	if err != nil {
		return fmt.Errorf("write the figures of the charts: %w", err)
	}
	v.Allowed = uplot.Policy(pageStyle, pageScript) +
		"; img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	v.Styles = template.HTML("<style>" + uplot.Style + "</style>\n<style>" + pageStyle + "</style>")
	v.Scripts = template.HTML(`<script type="application/json" id="charts">` + string(data) + "</script>\n<script>" + uplot.Script + "</script>\n<script>" + pageScript + "</script>")
	t, err := template.New("page").Funcs(pageWords()).Parse(pageDocument)
	if err != nil {
		return fmt.Errorf("read the page's template: %w", err)
	}
	return t.Execute(w, v)
}

// pageWords are what the template says numbers with.
func pageWords() template.FuncMap {
	return template.FuncMap{
		"n": thousands, "share": share, "part": part, "counted": counted, "lasting": lasting, "moment": moment, "many": many, "file": FileName, "warnings": Warnings, "changed": changedName, "peak": peak, "peaks": peaks, "least": least, "doubts": doubts, "besides": besides, "more": more,
		"shown": func(s string) string { return Shown(s, 300) }, // what cannot be seen is spelled out
		"len64": func(list []replay.BadLine) int64 { return int64(len(list)) },
		"iso":   func(at int64) string { return time.Unix(at, 0).UTC().Format(time.RFC3339) },
	}
}

// A view is a report as the template wants it.
type view struct {
	*replay.Report
	Allowed         string        // the content policy
	Styles, Scripts template.HTML // ours alone: nothing that a log tells is in them but as JSON
	Outcomes        []outcomeView
	Limiters        []limiterView
	Sentence        string
	Notes           []string
	Verdicts        []Verdict
	Newly           int // the chart of what is newly refused
	Waited          bool
	Unsure          bool // of some requests it is unknown whether they would have been refused

	charts []chart
}

// An outcomeView is one policy's outcome, and its chart.
type outcomeView struct {
	*replay.Outcome
	Chart int
}

// A limiterView is one limiter under each policy that has it.
type limiterView struct {
	Name string
	Each []limiterOutcome
}

type limiterOutcome struct {
	*replay.Limiter
	Policy      string // whose; empty where there is only one
	Chart       int
	Recommended bool
}

// A chart is what the script draws: so many requests in each step, of which so many refused. Top is how high its scale goes, so that
// charts that stand side by side have one.
type chart struct {
	Start    int64   `json:"start"`
	Step     int64   `json:"step"`
	Requests []int64 `json:"requests,omitempty"`
	Refused  []int64 `json:"refused"`
	Top      int64   `json:"top"`
}

func newView(r *replay.Report) *view {
	v := &view{Report: r, Sentence: Sentence(r), Notes: Notes(&r.Log)}
	outcomes := []*replay.Outcome{&r.Policy}
	if r.Against != nil {
		outcomes = append(outcomes, r.Against)
	}
	for _, o := range outcomes {
		v.Outcomes = append(v.Outcomes, outcomeView{o, v.chart(o.Series)})
		v.Waited = v.Waited || o.Delay != nil
		v.Unsure = v.Unsure || o.Unknown > 0
		for i := range o.Limiters {
			v.limiter(o, &o.Limiters[i], len(outcomes))
		}
	}
	v.level()
	if r.Difference != nil {
		series := r.Difference.Series
		series.Requests = nil
		v.Newly = v.chart(series)
	}
	return v
}

// limiter puts what a limiter did beside what one of its name did under the other policy.
func (v *view) limiter(o *replay.Outcome, l *replay.Limiter, policies int) {
	one := limiterOutcome{Limiter: l, Chart: v.chart(l.Series)}
	if policies > 1 {
		one.Policy = o.Name
	}
	one.Recommended = slices.ContainsFunc(l.Windows, func(w replay.Window) bool { return w.Recommend != nil })
	i := slices.IndexFunc(v.Limiters, func(known limiterView) bool { return known.Name == l.Name })
	if i < 0 {
		v.Limiters = append(v.Limiters, limiterView{Name: l.Name})
		i = len(v.Limiters) - 1
	}
	v.Limiters[i].Each = append(v.Limiters[i].Each, one)
}

// chart keeps a series for the script, with neighbours added up where there are too many, and returns its number.
func (v *view) chart(s replay.Series) int {
	n := max(len(s.Requests), len(s.Refused))
	each := int64(max((n+mostPoints-1)/mostPoints, 1))
	c := chart{Start: s.Start, Step: s.Step * each, Requests: merged(s.Requests, mostPoints), Refused: merged(s.Refused, mostPoints)}
	for _, values := range [][]int64{c.Requests, c.Refused} {
		for _, n := range values {
			c.Top = max(c.Top, n)
		}
	}
	v.charts = append(v.charts, c)
	return len(v.charts) - 1
}

// level gives charts that are compared one scale.
func (v *view) level() {
	var all []int
	for _, o := range v.Outcomes {
		all = append(all, o.Chart)
	}
	v.same(all)
	for _, l := range v.Limiters {
		all = nil
		for _, one := range l.Each {
			all = append(all, one.Chart)
		}
		v.same(all)
	}
}

func (v *view) same(charts []int) {
	top := int64(0)
	for _, i := range charts {
		top = max(top, v.charts[i].Top)
	}
	for _, i := range charts {
		v.charts[i].Top = top
	}
}
