package sample

import (
	"strings"
	"unicode"

	"github.com/weirlimit/weir/internal/sample/terms"
)

// maxPassage is the max length of a passage in bytes, about three or four sentences.
const maxPassage = 400

// A hit is a position in a text that has a term of the question.
type hit struct {
	start, end int
	term       string
}

// passage returns the part of text with the greatest sum of worth, which maps terms to weights, in
// whole sentences if they fit. It is an unchanged piece of text, never cut inside a word or a
// character. It is empty if no such piece is short enough.
func passage(text string, worth map[string]float64) string {
	from, to := densest(text, worth)
	from = opening(text, from, to)
	to = closing(text, from, to)
	return strings.TrimSpace(text[from:to])
}

// densest returns the range of at most maxPassage bytes with the greatest sum of weights of
// different terms, or the start of the text if it has none of them.
func densest(text string, worth map[string]float64) (from, to int) {
	var window []hit
	count := map[string]int{}
	sum, best, most := 0.0, 0.0, 0.0
	for _, w := range worth {
		most += w
	}
	for t := range terms.Of(text) {
		if worth[t.Text] == 0 || t.End-t.Start > maxPassage {
			continue
		}
		window = append(window, hit{t.Start, t.End, t.Text})
		if count[t.Text]++; count[t.Text] == 1 {
			sum += worth[t.Text]
		}
		for t.End-window[0].start > maxPassage {
			first := window[0].term
			if count[first]--; count[first] == 0 {
				sum -= worth[first]
			}
			window = window[1:]
		}
		if sum > best+1e-9 {
			from, to, best = window[0].start, t.End, sum
		}
		if best > most-1e-6 {
			break // it has all terms
		}
	}
	if best == 0 {
		from = len(text) - len(strings.TrimLeftFunc(text, unicode.IsSpace))
		return from, from
	}
	return from, to
}

// opening returns where a passage with text[from:to] begins: at the start of its sentence, or, if
// that is too far, at a break that leaves room for the text after to.
func opening(text string, from, to int) int {
	for at := from; at >= max(0, to-maxPassage); at-- {
		if terms.Sentence(text, at) {
			return at
		}
	}
	for at := max(0, to-maxPassage, from-maxPassage/4); at < from; at++ {
		if terms.Breaks(text, at) {
			return at
		}
	}
	return from
}

// closing returns where a passage ends that begins at from and includes everything up to to: after
// as many sentences of the paragraph as fit. Text that does not end like a sentence is a heading,
// so the passage continues after it.
func closing(text string, from, to int) int {
	last := min(len(text), from+maxPassage)
	end := -1
	for at := to; at <= last; at++ {
		if !terms.Sentence(text, at) {
			continue
		}
		if end = at; strings.HasPrefix(text[at:], "\n\n") && terms.Ends(text[:at]) {
			break
		}
	}
	for at := last; end < 0 && at >= to; at-- {
		if terms.Breaks(text, at) {
			end = at
		}
	}
	if end < 0 { // the hit is inside text without any break
		return from
	}
	return end
}
