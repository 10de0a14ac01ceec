package report

import (
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
)

// A grid is rows of cells in columns of one width.
type grid struct {
	left string // which columns are written to the left: an "l" for each, and "r" for numbers
	rows [][]string
}

func (g *grid) row(cells ...string) { g.rows = append(g.rows, cells) }

// drop leaves a column out.
func (g *grid) drop(column int) {
	g.left = g.left[:column] + g.left[column+1:]
	for i, row := range g.rows {
		g.rows[i] = slices.Delete(row, column, column+1)
	}
}

// widths returns how wide each column is.
func (g *grid) widths() []int {
	widths := make([]int, len(g.left))
	for _, row := range g.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	return widths
}

// room is how much of a line of that width the last column has.
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
