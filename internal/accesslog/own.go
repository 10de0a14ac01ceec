package accesslog

import (
	"bytes"
	"strconv"
)

// An ownLine is why a line of Weir's own log is no request, and not malformed either: the server
// speaks of itself, such as when it starts and stops.
type ownLine struct {
	dropped int64 // requests that the line says are missing in the log
}

func (*ownLine) Error() string { return "no request: the server says something of itself" }

// newOwnLine reads a line with a level and a message. lines is how many a message of lost lines
// counts.
func newOwnLine(message, lines []byte) *ownLine {
	if string(message) != "access log lines dropped" {
		return &ownLine{}
	}
	n, _ := strconv.ParseInt(string(lines), 10, 64)
	return &ownLine{dropped: max(n, 1)} // some were lost even if the number cannot be read
}

// ownLines knows what a server prints when it starts, which has no times: from a line that says
// where it listens to one that says that it is ready. Where standard output and standard error go
// to one file, it stands among the other lines.
type ownLines struct {
	left int // lines that may still belong to it
}

const longestBanner = 64 // lines

// banner reports whether a line belongs to it.
func (o *ownLines) banner(b []byte) bool {
	if bytes.HasPrefix(b, []byte("listening  ")) {
		o.left = longestBanner
		return true
	}
	if o.left == 0 || bytes.HasPrefix(b, []byte("time=")) || b[0] == '{' {
		return false
	}
	if o.left--; string(b) == "ready" {
		o.left = 0
	}
	return true
}
