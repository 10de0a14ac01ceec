// Package target reads the path of a request as the client wrote it, for every server through which
// requests arrive. A path has one canonical form or none (canonical.go), and that form determines
// which limiter of a policy counts the request (choice.go). A gateway may forward paths as sent
// instead, and then counts by a folded form (sent.go).
package target

import (
	"strings"

	"github.com/weirlimit/weir"
)

// match returns the match for a canonical, decoded path (see Decode). An upstream might cut the
// path off at a decoded "?" or "#", or drop spaces around a name, so the path is matched without
// these.
func match(d *weir.Decider, method, host, path string) weir.Match {
	if !isWhole(path) {
		path = cut(path)
	}
	return d.Match(method, host, path)
}

// isWhole reports whether cut leaves a path as it is.
func isWhole(path string) bool {
	// three times faster than strings.ContainsAny, which reads byte by byte
	return strings.IndexByte(path, '?') < 0 && strings.IndexByte(path, '#') < 0 && strings.IndexByte(path, ' ') < 0
}

func cut(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i] = nameOf(s)
	}
	return strings.Join(segments, "/")
}

// unreadable returns what a path with no canonical form is charged to: the catch-all of the surface
// that it was probably meant for (D10). path is the guess by which that surface was found. Use it
// for nothing else.
func unreadable(d *weir.Decider, host, raw string) (m weir.Match, path string) {
	path = Guess(raw)
	if m = d.CatchAll(host, path); m.Limiter() == nil {
		// Resolved, dot segments lead out of every surface, but an upstream may not resolve them.
		path, _, _ = strings.Cut(path, "/..")
		m = d.CatchAll(host, path)
	}
	return m, path
}

// preflightLimiter is the name of a limiter of the built-in policy. A policy that has it limits the
// contract's API: Weir answers the preflights of its surfaces, and that limiter counts them. It is
// never a visitor's or a token's own budget (D9).
const preflightLimiter = "widget-other"

// IsMethod reports whether every gateway accepts the method. It answers any other with 405, unless
// it is one of its own Methods.
func IsMethod(method string) bool {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
		return true
	}
	return false
}
