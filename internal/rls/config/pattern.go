package config

import "strings"

// A wildcard is a value with stars, each of which stands for any text, also an empty one.
type wildcard struct {
	parts []string // the text between the stars, which has one more part than there are stars
	node  *Node
}

func newWildcard(value string, node *Node) wildcard {
	return wildcard{strings.Split(value, "*"), node}
}

// matches reports whether the whole value has all parts in their order. The first and the last are
// its begin and its end. Each part between them is taken where it occurs first, which leaves most
// for the next ones, so the time is linear in practice and never exponential.
func (w *wildcard) matches(value string) bool {
	first, last := w.parts[0], w.parts[len(w.parts)-1]
	rest, ok := strings.CutPrefix(value, first)
	if !ok {
		return false
	}
	if rest, ok = strings.CutSuffix(rest, last); !ok {
		return false
	}
	for _, part := range w.parts[1 : len(w.parts)-1] {
		if _, rest, ok = strings.Cut(rest, part); !ok {
			return false
		}
	}
	return true
}
