package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/replay"
	"github.com/weirlimit/weir/internal/uplot"
)

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// The page is compiled to Go (page.qtpl.go), not interpreted: html/template looks methods up by
// name, which makes the linker keep every exported method of every type of the program
// (docs/adr/0041-what-is-in-a-release.md).
//
//go:generate go run github.com/valyala/quicktemplate/qtc@v1.8.0 -skipLineComments -file page.qtpl
//go:generate gofmt -w page.qtpl.go

// maxPoints is the maximum number of points of a chart, for any length of the log: as many as can
// be distinguished.
const maxPoints = 500

// HTML writes r as one self-contained document: style, script and figures are inside, and its
// content policy allows only these to run. Its tables need no script; its charts do. Verdicts are
// those of the gates, and may be empty.
func HTML(w io.Writer, r *replay.Report, verdicts []Verdict) error {
	v := newView(r)
	v.Verdicts = verdicts
	data, err := json.Marshal(v.charts) // JSON escapes < > &, so that no name ends the element
	if err != nil {
		return fmt.Errorf("write the figures of the charts: %w", err)
	}
	v.Allowed = uplot.Policy(pageStyle, pageScript) +
		"; img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	v.Styles = "<style>" + uplot.Style + "</style>\n<style>" + pageStyle + "</style>"
	v.Scripts = `<script type="application/json" id="charts">` + string(data) + "</script>\n<script>" + uplot.Script + "</script>\n<script>" + pageScript + "</script>"
	_, err = io.WriteString(w, page(v))
	return err
}

// shown is untrusted text as the page has it, with invisible characters spelled out.
func shown(s string) string { return Shown(s, 300) }

func iso(at int64) string { return time.Unix(at, 0).UTC().Format(time.RFC3339) }

// A view is a report as the template needs it.
type view struct {
	*replay.Report
	Allowed         string // the content policy
	Styles, Scripts string // markup: only our own text, and a log's as JSON
	Outcomes        []outcomeView
	Limiters        []limiterView
	Sentence        string
	Notes           []string
	Verdicts        []Verdict
	Newly           int // the chart of newly refused requests
	Waited          bool
	Unsure          bool // for some requests it is unknown whether they would have been refused

	charts []chart
}

// An outcomeView is one policy's outcome and its chart.
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
	Policy      string // its policy; empty if there is only one
	Chart       int
	Recommended bool
}

// A chart is what the script draws: the requests and refusals in each step. Top is the maximum of
// its scale, so that charts side by side can share one.
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

// limiter adds a limiter's results, next to those of the same name under the other policy.
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

// chart keeps a series for the script, with neighbours added up if there are too many, and returns
// its number.
func (v *view) chart(s replay.Series) int {
	n := max(len(s.Requests), len(s.Refused))
	each := int64(max((n+maxPoints-1)/maxPoints, 1))
	c := chart{Start: s.Start, Step: s.Step * each, Requests: merged(s.Requests, maxPoints), Refused: merged(s.Refused, maxPoints)}
	for _, values := range [][]int64{c.Requests, c.Refused} {
		for _, n := range values {
			c.Top = max(c.Top, n)
		}
	}
	v.charts = append(v.charts, c)
	return len(v.charts) - 1
}

// level gives charts that are compared the same scale.
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
