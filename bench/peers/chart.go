package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/weirlimit/weir/bench/page"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A chart is a row of panels of horizontal bars, one bar a contestant, in the same order in every
// panel.
type chart struct {
	file   string
	names  []string
	panels []panel
}

type panel struct {
	title   string
	log     bool
	origin  float64 // where the axis begins: 0, except for logarithms
	samples func(name string) []float64
	// whiskers end at these parts of the samples.
	low, high float64
}

func (r *results) charts() []chart {
	of := func(metric, figure string) func(string) []float64 {
		return func(name string) []float64 { return r.of(metric, figure, name) }
	}
	var all, ours []string
	for _, c := range contestants() {
		all = append(all, c.name)
	}
	for _, c := range ourselves()[1:] {
		ours = append(ours, c.name)
	}
	return []chart{
		{"performance-decision.svg", all, []panel{
			{title: "hot key, ns", samples: of("hot 1", "ns"), low: 0.25, high: 0.75},
			{title: "a million keys at random, ns", samples: of("million 1", "ns"), low: 0.25, high: 0.75},
		}},
		{"performance-cores.svg", all, []panel{
			{title: "64 goroutines a core on one key, ns", samples: of("herd 2", "ns"), low: 0.25, high: 0.75},
			{title: "a million keys, two cores, ns", samples: of("million 2", "ns"), low: 0.25, high: 0.75},
		}},
		{"performance-memory.svg", all, []panel{
			{title: "bytes a key, " + millions(r.Many) + " keys", samples: of("memory "+millions(r.Many), "steady"), high: 1},
			{title: "full garbage collection, ms (logarithmic)", log: true, origin: 0.1, samples: of("memory "+millions(r.Many), "ms"), high: 1},
		}},
		{"performance-worst.svg", slices.Insert(slices.Clone(all), 2, ours...), []panel{
			{title: r.whileExpiring() + ", ms (logarithmic)", log: true, origin: 0.01, samples: of("expire", "worst"), high: 1},
			{title: r.whileGrowing() + ", ms (logarithmic)", log: true, origin: 0.01, samples: of("grow", "worst"), high: 1},
		}},
	}
}

// The colours suit a white page and a dark one: there is no background.
var (
	ink    = color.RGBA{0x80, 0x88, 0x92, 0xff}
	weirs  = color.RGBA{0x2d, 0xa4, 0x4e, 0xff}
	peers  = color.RGBA{0x6c, 0x8e, 0xbf, 0xff}
	bottom = color.RGBA{0xa8, 0xae, 0xb6, 0xff}
)

func colourOf(name string) color.Color {
	switch {
	case name == floorName:
		return bottom
	case bold(name) != name:
		return weirs
	}
	return peers
}

// write draws the chart, if it has figures, into a directory.
func (c chart) write(dir string) error {
	for _, p := range c.panels {
		if !slices.ContainsFunc(c.names, func(n string) bool { return len(p.samples(n)) > 0 }) {
			return nil
		}
	}
	c.names = slices.DeleteFunc(slices.Clone(c.names), func(n string) bool {
		return !slices.ContainsFunc(c.panels, func(p panel) bool { return len(p.samples(n)) > 0 })
	})
	const width, rowHeight, margin = 620, 17, 34
	canvas := vgsvg.New(width, vg.Length(len(c.names)*rowHeight+margin))
	plots := [][]*plot.Plot{nil}
	for i, p := range c.panels {
		plots[0] = append(plots[0], c.plot(p, i == 0))
	}
	tiles := draw.Tiles{Rows: 1, Cols: len(c.panels), PadX: 14, PadRight: 4}
	for i, part := range plot.Align(plots, tiles, draw.New(canvas))[0] {
		plots[0][i].Draw(part)
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return fmt.Errorf("draw %s: %w", c.file, err)
	}
	return os.WriteFile(filepath.Join(dir, c.file), everywhere(b.Bytes()), 0o644)
}

// everywhere replaces the font by fonts of the same widths that readers' machines have.
func everywhere(svg []byte) []byte {
	svg = regexp.MustCompile(`font-family:[^;"]*`).ReplaceAll(svg, []byte("font-family:Arial,Helvetica,Liberation Sans,sans-serif"))
	return regexp.MustCompile(`\s*<!--[^>]*-->`).ReplaceAll(svg, nil)
}

func (c chart) plot(p panel, named bool) *plot.Plot {
	pl := plot.New()
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 10}
	pl.BackgroundColor = nil
	pl.Title.Text, pl.Title.TextStyle.Font, pl.Title.TextStyle.Color = p.title, sans, ink
	pl.Title.Padding = 4
	pl.HideX()
	// room for a wider font
	pl.Y.LineStyle.Width, pl.Y.Tick.LineStyle.Width, pl.Y.Tick.Length, pl.Y.Padding = 0, 0, 0, 14
	pl.Y.Min, pl.Y.Max = -0.5, float64(len(c.names))-0.5
	pl.Y.Tick.Label.Font, pl.Y.Tick.Label.Color = sans, ink
	var ticks []plot.Tick
	bars := bars{panel: p, style: text.Style{Color: ink, Font: sans, YAlign: -0.35, Handler: plot.DefaultTextHandler}}
	for i, name := range c.names {
		at := float64(len(c.names) - 1 - i)
		if named {
			ticks = append(ticks, plot.Tick{Value: at, Label: name})
		}
		if xs := p.samples(name); len(xs) > 0 {
			bars.all = append(bars.all, bar{at: at, value: page.Median(xs), low: page.Quantile(xs, p.low), high: page.Quantile(xs, p.high), fill: colourOf(name)})
		}
	}
	pl.Y.Tick.Marker = plot.ConstantTicks(ticks)
	pl.X.Min, pl.X.Max = bars.span()
	pl.Add(bars)
	return pl
}

// bars are the bars of one panel.
type bars struct {
	panel panel
	style text.Style
	all   []bar
}

type bar struct {
	at, value, low, high float64
	fill                 color.Color
}

// scale returns the position of a value on the axis.
func (b bars) scale(v float64) float64 {
	if b.panel.log {
		return math.Log10(max(v, b.panel.origin) / b.panel.origin)
	}
	return v
}

// span returns the range of the axis, with room for the figure after the longest bar.
func (b bars) span() (low, high float64) {
	for _, one := range b.all {
		high = max(high, b.scale(one.high), b.scale(one.value))
	}
	return 0, high * 1.25
}

// Plot draws the bars: the median, its spread, and the figure.
func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	const half = 5
	line := draw.LineStyle{Color: ink, Width: 0.8}
	for _, one := range b.all {
		left, right, middle := x(0), x(b.scale(one.value)), y(one.at)
		c.FillPolygon(one.fill, []vg.Point{{X: left, Y: middle - half}, {X: right, Y: middle - half}, {X: right, Y: middle + half}, {X: left, Y: middle + half}})
		low, high := x(b.scale(one.low)), x(b.scale(one.high))
		c.StrokeLine2(line, low, middle, high, middle)
		c.StrokeLine2(line, low, middle-half/2, low, middle+half/2)
		c.StrokeLine2(line, high, middle-half/2, high, middle+half/2)
		c.FillText(b.style, vg.Point{X: max(right, high) + 4, Y: middle}, page.Digits(one.value))
	}
}
