package accesslog

import (
	"bytes"
	"strconv"
)

// An ownLine is the error for a line of Weir's log that is a message of the server itself, such as
// on start and stop. Such a line is neither a request nor malformed.
type ownLine struct {
	dropped int64 // requests that the line reports as missing in the log
}

func (*ownLine) Error() string { return "not a request: the server logged something about itself" }

// newOwnLine reads a line with a level and a message. lines is the count in a message about dropped
// lines.
func newOwnLine(message, lines []byte) *ownLine {
	if string(message) != "access log lines dropped" {
		return &ownLine{}
	}
	n, _ := strconv.ParseInt(string(lines), 10, 64)
	return &ownLine{dropped: max(n, 1)} // some were dropped even if the number cannot be read
}

// ownLines recognizes the banner that a server prints at startup. It has no times, and reaches from
// the line with the listening address to the line "ready". If standard output and standard error go
// to one file, it is among the other lines.
type ownLines struct {
	left int // max remaining lines of the banner
}

const maxBanner = 64 // lines

// printed are the beginnings of lines that a server prints without a time, mostly at its start.
var printed = [...]string{"warning: ", "hint: ", "error: "}

// banner reports whether a line is part of the banner, or printed without a time.
func (o *ownLines) banner(b []byte) bool {
	for _, beginning := range printed {
		if bytes.HasPrefix(b, []byte(beginning)) {
			return true
		}
	}
	if bytes.HasPrefix(b, []byte("listening  ")) {
		o.left = maxBanner
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
