// Package accesslog reads the access logs of web servers, in the formats that these write by themselves or are commonly told to:
// many files as one stream in the order of time, compressed or not. It imports nothing of the project. Logs are hostile input: no
// line makes it panic, hold more than its bounds, or read for longer than its length.
//
//	accesslog.go  a line, the options
//	reader.go     Open and Next: the merge of the files by time
//	source.go     one file of the merge: opened when its time has come, its lines put in order
//	order.go      the lines that wait for those that may stand before them
//	doubt.go      lines whose times are far ahead of those around them
//	lines.go      text cut into lines, in blocks that the waiting lines share
//	stop.go       pipes that have nothing to read
//	unpack.go     gzip and zstd, told by content
//	detect.go     the formats and their names; which one a file has
//	clf.go        common, combined, vhost_combined, Traefik's own
//	template.go   nginx's log_format; Envoy's own text
//	object.go     JSON lines: nginx, Caddy, Traefik, Envoy, weir
//	pairs.go      weir's own text
//	request.go    a request line, and the escapes in which logs write
//	stamp.go      times
//	own.go        lines of Weir's own log that are no requests
//	direction.go  files that are newest first
//	wrong.go      why a line cannot be read
package accesslog

import (
	"io"
	"time"
)

// A Line is one request as a log tells it. What its slices hold is the reader's, and changes with the next call of Next.
type Line struct {
	Time      int64  // Unix nanoseconds: when the request began, as far as the log tells; else when it was logged
	Peer      []byte // the client's address as it is logged, with or without a port
	Method    []byte // empty where the log holds no readable request line (a handshake, a time-out)
	Target    []byte // as it came: path and query, escapes and all
	UserAgent []byte // nil if the format has none or the client sent none: TellsAgent says which
	Agent     []byte // the keyed hash of the agent, which Weir's own log has of requests that were counted by agent; else nil
	Status    int    // 0 where the format has none

	// TellsAgent says that the log tells by which User-Agent, or Agent, the request came, also if
	// that was none. A text format tells it if it has a place for it. A line of JSON without the
	// member tells it if a line before it in the file, or one of those that the format was told by,
	// has the member: then the server leaves it out if the client sent none.
	TellsAgent bool

	File   int   // index into Options.Files
	Number int64 // of the line in its file, from 1

	extra [][]byte // the values of Options.Fields; nil where the line has none
}

// Field returns the value of Options.Fields[i]; nil where the line has none ("-" is none, too).
func (l *Line) Field(i int) []byte { return l.extra[i] }

// Options are a Reader's settings.
type Options struct {
	Files []string  // "-" is Stdin; none: only "-"
	Stdin io.Reader // required where "-" is read

	// Format is "auto" (also where it is empty: each file's first lines tell), the name of one (Formats), or a log_format as
	// nginx's configuration has it, with its $variables: the text alone, or with the directive's name, escape parameter and quotes.
	//
	// The address is what the server takes for the client's: nginx's $remote_addr, Caddy's client_ip, Envoy's
	// downstream_remote_address. Traefik's ClientHost and Envoy's own text hold X-Forwarded-For, of which the last address counts:
	// the one that the nearest proxy has seen. A time is when the request began where the format says that, or has a duration to
	// subtract; nginx's own formats have the time at which it ended. A time without a zone is UTC.
	Format string

	// Fields are further values to keep of each line: a variable of the log_format without its $, or a dotted path into a JSON
	// line (request.headers.X-Session.0).
	// One that no line of any of the files can have is an error.
	Fields []string

	// Reorder is how much later in a file a line may stand than its time says; within that, lines come in the order of their
	// times. 0 means 1 s, and 30 s for formats that give the time at which a request began but are written when it has ended;
	// negative: lines come as they stand.
	Reorder time.Duration

	// Stop, once it is closed, ends the reading of what is no regular file and has nothing to read: with ErrStopped, after the lines that
	// were read. nil: a pipe is waited for.
	Stop <-chan struct{}

	// Malformed, if set, is told of each line that cannot be read, and of each whose time is more than an hour ahead of all that stand
	// before it in its file, and of at least half of the 32 that follow. It must not keep m.Text.
	Malformed func(m Malformed)
}

// A Malformed line is one that is no request of its file's format.
type Malformed struct {
	File   string // as Options.Files has it
	Line   int64  // from 1
	Text   []byte // the beginning of it, at most 200 bytes, as it stands: it may hold anything
	Reason string // what is wrong, and what was expected, in at most 200 bytes; of the line it quotes only what Text has
}
