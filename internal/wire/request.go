package wire

import "strings"

// A Request is the head of a request. Its strings are parts of the head that was parsed, which is
// never changed, so they may be kept. The zero value is ready for Parse, which can be called again.
type Request struct {
	Method string // a token, in the case it came in
	// origin form ("/path?query"), or "*" of OPTIONS; bytes 0x21–0x7e but "#", and 0x80–0xff
	Target string
	Minor  int // HTTP/1.Minor: 0 or 1
	// of the one Host field; empty if the field is, or if an HTTP/1.0 request has none
	Host string

	// every field line as it came, in order, Host and framing included; Parse uses the slice again
	Fields []Field
	Length int64 // of the body: a number, or Chunked; 0: no body
	// the connection ends with this exchange: "close" in Connection, or HTTP/1.0 without "keep-
	// alive"
	Close  bool
	Expect bool // 100-continue is awaited before the body (HTTP/1.1 with a body only)

	// Protocol is the :protocol of an extended CONNECT over HTTP/2; else empty.
	Protocol string

	framing framing
	hosts   int // of HTTP/2: how many fields name the host
}

// usualFields is the capacity that a first Parse allocates. Reset drops a slice of more than four
// times as much.
const usualFields = 16

// Reset drops the head that was parsed, which otherwise stays in memory until the next one. It is
// for connections that wait.
func (r *Request) Reset() {
	*r = Request{Fields: forget(r.Fields), framing: framing{named: r.framing.named[:0]}}
	clear(r.framing.named[:cap(r.framing.named)])
}

// forget empties a slice of fields, so that it does not keep the head that they were part of.
func forget(fields []Field) []Field {
	if cap(fields) > 4*usualFields {
		return nil
	}
	clear(fields[:cap(fields)])
	return fields[:0]
}

// Parse reads a whole head: request line, field lines, and the empty line that ends it. The error
// is a *Refusal, after which only Method, Target and Minor are valid: each is what came, or empty
// if the head was refused before it.
func (r *Request) Parse(head string) error {
	if refusal := r.parse(head); refusal != nil {
		return refusal
	}
	return nil
}

func (r *Request) parse(head string) *Refusal {
	fields, named := r.Fields[:0], r.framing.named[:0]
	if fields == nil {
		fields = make([]Field, 0, usualFields)
	}
	*r = Request{Fields: fields, framing: framing{named: named}}
	at, refusal := r.line(head)
	if refusal != nil {
		return refusal
	}
	if r.Fields, refusal = fieldLines(r.Fields, head, at, MaxFields); refusal != nil {
		return refusal
	}
	return r.judge()
}

// line reads the request line, and returns where the field lines begin.
func (r *Request) line(s string) (at int, refusal *Refusal) {
	i := span(s, 0, inToken)
	if i == 0 || i == len(s) || s[i] != ' ' {
		return 0, badByte(s, i, badMethod)
	}
	method := s[:i]
	start := i + 1
	i = plain(s, start, '!')
	if i == start || i == len(s) || s[i] != ' ' {
		return 0, badByte(s, i, badTarget)
	}
	target := s[start:i]
	if strings.IndexByte(target, '#') >= 0 {
		return 0, targetFragment
	}
	version := s[i+1:]
	if len(version) < len("HTTP/1.1\r\n") || version[:5] != "HTTP/" || version[6] != '.' || !digit(version[5]) || !digit(version[7]) {
		return 0, badByte(version, valueEnd(version, 0), noVersion)
	}
	if version[8] != '\r' || version[9] != '\n' {
		return 0, badByte(version, 8, afterVersion)
	}
	if version[5] != '1' || version[7] > '1' {
		return 0, otherVersion
	}
	if target[0] != '/' && (target != "*" || method != "OPTIONS") {
		return 0, targetNoSlash
	}
	r.Method, r.Target, r.Minor = method, target, int(version[7]-'0')
	return i + 1 + len("HTTP/1.1\r\n"), nil
}

func digit(c byte) bool { return c-'0' <= 9 }

// judge reads from the fields how the body is framed, and which host is asked.
func (r *Request) judge() *Refusal {
	hosts, expects, unmet := 0, false, false
	for i := range r.Fields {
		field := &r.Fields[i]
		switch len(field.Name) {
		case len("Host"):
			if EqualFold(field.Name, "Host") {
				hosts++
				r.Host = field.Value
			}
		case len("Expect"):
			if EqualFold(field.Name, "Expect") {
				expects = true
				unmet = unmet || !EqualFold(field.Value, "100-continue")
			}
		case len("Connection"):
			if EqualFold(field.Name, "Connection") {
				if refusal := r.framing.connection(field.Value); refusal != nil {
					return refusal
				}
			}
		case len("Content-Length"), len("Transfer-Encoding"):
			if refusal := r.framing.look(field); refusal != nil {
				return refusal
			}
			if disguised(field.Name) {
				return disguisedFraming
			}
		}
	}
	switch {
	case hosts > 1:
		return manyHosts
	case hosts == 0 && r.Minor == 1:
		return noHost
	case !ValidHost(r.Host):
		return BadHost
	}
	chunked, refusal := r.framing.chunked(r.Minor)
	if refusal != nil {
		return refusal
	}
	if r.Length = r.framing.length; chunked {
		r.Length = Chunked
	}
	r.Close = r.framing.close || r.Minor == 0 && !r.framing.keep
	if r.Minor == 1 && expects { // RFC 9110, section 10.1.1: HTTP/1.0 knows no expectations
		if unmet {
			return badExpect
		}
		r.Expect = r.Length != 0
	}
	return nil
}

// disguised reports whether a name differs from one of the two that frame bodies only in the byte
// at the place of the dash. CGI and its successors (WSGI, PHP) turn both into an underscore.
func disguised(name string) bool {
	return looksLike(name, "Content-Length", len("Content")) || looksLike(name, "Transfer-Encoding", len("Transfer"))
}

func looksLike(name, framing string, dash int) bool {
	return len(name) == len(framing) && name[dash] != '-' && EqualFold(name[:dash], framing[:dash]) && EqualFold(name[dash+1:], framing[dash+1:])
}

// Values returns the values of a field by its name, in any case, in order; nil if there is none. It
// allocates if there is one.
func (r *Request) Values(name string) []string { return valuesOf(r.Fields, name) }

// AppendValues appends the values of a field to dst.
func (r *Request) AppendValues(dst []string, name string) []string {
	return appendValues(dst, r.Fields, name)
}

// Names reports whether the Connection fields name a field, in any case. It belongs to this hop
// alone then (RFC 9110, section 7.6.1). "close" and "keep-alive" are not names of fields.
func (r *Request) Names(field string) bool { return r.framing.names(field) }
