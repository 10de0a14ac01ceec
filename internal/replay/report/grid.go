package report

import (
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
)

// A grid is rows of cells in aligned columns.
type grid struct {
	left string // the alignment of each column: "l" left, "r" right
	rows [][]string
}

func (g *grid) row(cells ...string) { g.rows = append(g.rows, cells) }

// drop removes a column.
func (g *grid) drop(column int) {
	g.left = g.left[:column] + g.left[column+1:]
	for i, row := range g.rows {
		g.rows[i] = slices.Delete(row, column, column+1)
	}
}

// widths returns the width of each column.
func (g *grid) widths() []int {
	widths := make([]int, len(g.left))
	for _, row := range g.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	return widths
}

// room returns the width that is left for the last column in a line.
func (g *grid) room(width int) int {
	for _, w := range g.widths() {
		width -= w + 2
	}
	return width
}

func (g *grid) String() string {
	widths := g.widths()
	var all strings.Builder
	for _, row := range g.rows {
		var line strings.Builder
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-runewidth.StringWidth(cell))
			if i > 0 {
				line.WriteString("  ")
			}
			if g.left[i] == 'l' {
				line.WriteString(cell + space)
			} else {
				line.WriteString(space + cell)
			}
		}
		all.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return all.String()
}
