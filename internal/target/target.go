// Package target reads the path of a request, as a client wrote it, for every door through which requests come: it has one canonical
// form or none (canonical.go), and that form says which limiter of a policy counts the request (choice.go).
package target

import (
	"strings"

	"github.com/weirlimit/weir"
)

// match returns what covers a request for a canonical, decoded path (see Decode). Where a backend might cut the path off at a decoded
// "?" or "#", or drop blanks around a name, what is left counts.
func match(d *weir.Decider, method, path string) weir.Match {
	if strings.ContainsAny(path, "?# ") {
		path = cut(path)
	}
	return d.Match(method, path)
}

func cut(path string) string {
	segments := strings.Split(strings.NewReplacer("?", ";", "#", ";").Replace(path), "/")
	for i, s := range segments {
		name, _, _ := strings.Cut(s, ";")
		for strings.Contains(name, " .") {
			name = strings.ReplaceAll(name, " .", ".")
		}
		segments[i] = strings.Trim(name, " ")
	}
	return strings.Join(segments, "/")
}

// unreadable returns what a path with no canonical form is charged to: the fallback of the surface it was probably meant for (D10).
// path is the reading by which that was found, and good for nothing else.
func unreadable(d *weir.Decider, raw string) (m weir.Match, path string) {
	path = Guess(raw)
	if m = d.Fallback(path); m.Limiter() == nil {
		// Dot segments lead out of every surface, but they may not be ones to every backend.
		path, _, _ = strings.Cut(path, "/..")
		m = d.Fallback(path)
	}
	return m, path
}

// preflightLimiter is the name of the built-in policy's own limiter, which counts all preflights where a policy has it.
const preflightLimiter = "widget-other"

// preflight returns what CORS preflights for a path are counted by: never a visitor's or a token's own budget (D9).
func preflight(d *weir.Decider, path string) weir.Match {
	if m := d.Named(preflightLimiter); m.Limiter() != nil {
		return m
	}
	return d.Fallback(path)
}

// IsMethod reports whether a gateway knows the method; it answers any other 405, on the account of what covers the path.
func IsMethod(method string) bool {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
		return true
	}
	return false
}
