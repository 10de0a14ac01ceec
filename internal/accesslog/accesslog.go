// Package accesslog reads the access logs of web servers, in the formats that they write by default
// or are commonly configured to write. It merges many files, compressed or not, into one stream
// ordered by time, and imports nothing of this project. Logs are untrusted input: no line causes a
// panic, exceeds the memory bounds, or takes more than linear time.
//
//	accesslog.go  Line, Options, Malformed
//	reader.go     Open and Next: merges the files by time
//	source.go     one file of the merge: opened when due, its lines sorted
//	order.go      buffered lines that wait for earlier ones
//	doubt.go      rejects lines whose times are far ahead of their neighbours'
//	lines.go      splits text into lines, in blocks that buffered lines share
//	stop.go       reads of pipes that can be stopped
//	unpack.go     gzip and zstd, detected by content
//	detect.go     the table of formats; detects a file's format
//	clf.go        common, combined, vhost_combined, Traefik's text
//	template.go   nginx's log_format; Envoy's text
//	object.go     JSON lines: nginx, Caddy, Traefik, Envoy, weir
//	pairs.go      Weir's text
//	request.go    request lines, and the escapes in logs
//	stamp.go      times
//	own.go        lines of Weir's log that are not requests
//	direction.go  files that are newest first
//	wrong.go      the reasons why a line cannot be read
package accesslog

import (
	"io"
	"time"
)

// A Line is one request in a log. Its slices belong to the Reader and are valid until the next call
// of Next.
type Line struct {
	// Unix nanoseconds: when the request began, if the log has that; else when it was logged
	Time   int64
	Peer   []byte // the client's address as logged, with or without a port
	Method []byte // empty without a readable request line (a TLS handshake, a time-out)
	Target []byte // as received: path and query, with escapes
	// the host that the request was for, as logged, perhaps with a port: that of its target in
	// absolute form, or of its Host field; in vhost_combined that of the server that answered. nil
	// if the line has none
	Host      []byte
	UserAgent []byte // nil if the format has none or the client sent none (see HasAgent)
	// keyed hash of the agent, which Weir's log has for requests counted by agent; else nil
	Agent  []byte
	Status int // 0 in a format without one
	// nanoseconds from the begin of the request to its end; -1 if the log does not have it
	Duration int64
	// units that were charged before the request was served, which Weir's log has for admitted
	// requests whose cost may change; else 0
	Reserved int64
	// what the request has cost, in units, as Weir's log writes it if its answer has reported that;
	// else nil
	Cost []byte

	// HasAgent is true if the log records the User-Agent, or Agent, of the request, even if the
	// client sent none. In a text format it is true if the format has a place for it. A JSON line
	// may omit the member if the client sent none. For such a line it is true if an earlier line of
	// the file, or one of those from which the format was detected, has the member.
	HasAgent bool

	File   int   // index into Options.Files
	Number int64 // line number in its file, from 1

	extra [][]byte // the values of Options.Fields; nil if the line has none
}

// Field returns the value of Options.Fields[i], or nil if the line has none or "-".
func (l *Line) Field(i int) []byte { return l.extra[i] }

// Options configure a Reader.
type Options struct {
	Files []string  // "-" means Stdin; empty means only "-"
	Stdin io.Reader // required if "-" is read

	// Format is the name of a format (see Formats), an nginx log_format with its $variables, or
	// "auto" or empty to detect the format of each file from its first lines. A log_format is its
	// text alone, or the whole directive with name, escape parameter and quotes.
	//
	// The address is the one that the server takes for the client's: nginx's $remote_addr, Caddy's
	// client_ip, Envoy's downstream_remote_address. Traefik's ClientHost and Envoy's text hold
	// X-Forwarded-For, of which the last address is used: the one that the nearest proxy has seen.
	// The time is when the request began if the format has that, or has a duration to subtract.
	// nginx's default formats have the time at which the request ended. A time without a zone is
	// UTC.
	Format string

	// Fields are additional values to keep of each line: a log_format variable without its $, or a
	// dotted path into a JSON line (request.headers.X-Session.0). A field that no line of any of
	// the files can have is an error.
	Fields []string

	// Reorder is how late a line may be in its file. Lines that are late by less are sorted by
	// time. 0 means 1 s, or 30 s for formats that log the time at which a request began but write
	// the line when it ends. If it is negative, lines are not sorted.
	Reorder time.Duration

	// Stop, when closed, ends the reading of anything but a regular file that has nothing to read:
	// Next returns an error that wraps ErrStopped after all lines read so far. If it is nil, reads
	// of a pipe block.
	Stop <-chan struct{}

	// Malformed, if not nil, is called for each line that cannot be read, and for each line whose
	// time is more than an hour ahead of all lines before it in its file and of at least half of
	// the 32 lines after it. It must not keep m.Text.
	Malformed func(m Malformed)
}

// A Malformed line is one that is not a request in its file's format.
type Malformed struct {
	File string // as in Options.Files
	Line int64  // from 1
	Text []byte // the first 200 bytes of the line at most, as they are: may contain any byte
	// what is wrong and what was expected, in at most 200 bytes; quotes only bytes that are in Text
	Reason string
}
