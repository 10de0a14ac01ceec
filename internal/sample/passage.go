package sample

import (
	"strings"
	"unicode"

	"github.com/weirlimit/weir/internal/sample/words"
)

// mostPassage is the length in bytes of what is quoted at most: three or four sentences.
const mostPassage = 400

// A hit is a place in a text where something stands that was asked for.
type hit struct {
	start, end int
	term       string
}

// passage returns the part of text that says most of what was asked for, worth by term, in whole sentences where they fit.
// It is a piece of text as it stands, never cut inside a word or a character; empty where there is none that short.
func passage(text string, worth map[string]float64) string {
	from, to := densest(text, worth)
	from = opening(text, from, to)
	to = closing(text, from, to)
	return strings.TrimSpace(text[from:to])
}

// densest returns where the most different terms stand within mostPassage bytes; the start of the text where none does.
func densest(text string, worth map[string]float64) (from, to int) {
	var window []hit
	count := map[string]int{}
	sum, best, most := 0.0, 0.0, 0.0
	for _, w := range worth {
		most += w
	}
	for t := range words.Of(text) {
		if worth[t.Text] == 0 || t.End-t.Start > mostPassage {
			continue
		}
		window = append(window, hit{t.Start, t.End, t.Text})
		if count[t.Text]++; count[t.Text] == 1 {
			sum += worth[t.Text]
		}
		for t.End-window[0].start > mostPassage {
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
			break // nowhere can more be said
		}
	}
	if best == 0 {
		from = len(text) - len(strings.TrimLeftFunc(text, unicode.IsSpace))
		return from, from
	}
	return from, to
}

// opening returns where a passage begins that has text[from:to] in it: with its sentence, or with as much before it as
// leaves room for what comes after.
func opening(text string, from, to int) int {
	for at := from; at >= max(0, to-mostPassage); at-- {
		if words.Sentence(text, at) {
			return at
		}
	}
	for at := max(0, to-mostPassage, from-mostPassage/4); at < from; at++ {
		if words.Breaks(text, at) {
			return at
		}
	}
	return from
}

// closing returns where a passage ends that begins at from and has all up to to in it: after as many sentences of the
// paragraph as fit. What does not end as a sentence does is a heading, and its paragraph is yet to come.
func closing(text string, from, to int) int {
	last := min(len(text), from+mostPassage)
	end := -1
	for at := to; at <= last; at++ {
		if !words.Sentence(text, at) {
			continue
		}
		if end = at; strings.HasPrefix(text[at:], "\n\n") && words.Ends(text[:at]) {
			break
		}
	}
	for at := last; end < 0 && at >= to; at-- {
		if words.Breaks(text, at) {
			end = at
		}
	}
	if end < 0 { // what was found is part of something that goes on and on
		return from
	}
	return end
}
