package weir

import "strings"

// maxMeetings bounds how many pairs of routes checkShadows compares, so that a policy with very
// many routes with parameters is checked in a bounded time. Beyond it, a request that more than
// MaxShadows limiters cover is tried out under the most specific of them.
const maxMeetings = 1_000_000

// meetings finds the paths that a route and others have in common.
type meetings struct {
	routes []string // the folded paths of all routes that matter
	left   int      // pairs that may still be compared
}

// paths returns folded paths that a route covers: its own, and for a route with parameters also
// those in which other routes' literal segments are in the place of its parameters. A parameter
// that stays in a path is a segment that no route has. Some of the paths may be covered by no other
// route.
func (x *meetings) paths(route string) []string {
	all := []string{route}
	seen := map[string]bool{route: true}
	for i := 0; i < len(all); i++ {
		if !strings.Contains(all[i], "/{") {
			continue
		}
		for _, other := range x.routes {
			if x.left--; x.left < 0 {
				return all
			}
			if met, ok := meet(all[i], other); ok && !seen[met] {
				seen[met] = true
				all = append(all, met)
			}
		}
	}
	return all
}

// meet returns path with the literal segments of other in the place of its parameters, and with
// what other has beyond it. ok is false if the two have different literal segments, except at the
// end of one, which a star or a dot may follow.
func meet(path, other string) (met string, ok bool) {
	var b strings.Builder
	for path != "" && other != "" {
		var mine, theirs string
		mine, path = cutSegment(path)
		theirs, other = cutSegment(other)
		switch {
		case mine[0] == '{':
			mine = theirs
		case theirs[0] == '{' || mine == theirs:
		case other == "" && strings.HasPrefix(mine, theirs):
		case path == "" && strings.HasPrefix(theirs, mine):
			mine = theirs
		default:
			return "", false
		}
		b.WriteString("/" + mine)
	}
	return b.String() + path + other, true
}
