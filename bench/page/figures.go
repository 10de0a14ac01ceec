package page

import (
	"fmt"
	"math"
	"slices"
)

// None is the figure of what was not measured.
const None = "–"

// Median returns the median of some figures, at least one.
func Median(xs []float64) float64 { return Quantile(xs, 0.5) }

// Quantile returns the value below which a part of the figures is, of at least one.
func Quantile(xs []float64, part float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	return s[min(len(s)-1, int(part*float64(len(s))))]
}

// Digits formats a figure with three significant digits.
func Digits(v float64) string {
	switch {
	case v < 9.995:
		return fmt.Sprintf("%.2f", v)
	case v < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	whole := fmt.Sprintf("%.0f", math.Round(v))
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return whole
}

// Spread formats the median of some figures and their quartiles.
func Spread(xs []float64) string {
	if len(xs) == 0 {
		return None
	}
	return fmt.Sprintf("%s (%s–%s)", Digits(Median(xs)), Digits(Quantile(xs, 0.25)), Digits(Quantile(xs, 0.75)))
}
