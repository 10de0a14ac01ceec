package wire

// A Request is the head of a request. Its strings are parts of the head that was parsed, which is never changed, so that
// they may be kept. The zero value is ready for Parse, which can use it again.
type Request struct {
	Method string // a token, in the case it came in
	Target string // origin form ("/path?query"), or "*" of OPTIONS; no byte outside 0x21–0x7e but those of UTF-8 (0x80–0xff)
	Minor  int    // HTTP/1.Minor: 0 or 1
	Host   string // of the one Host field; empty where an HTTP/1.0 request has none, or an HTTP/1.1 request has an empty one

	Fields []Field // every field line as it came, in order, Host and framing included
	Length int64   // of the body: a number, or Chunked; 0: there is none
	Close  bool    // the connection ends with this exchange: "close" in Connection, or HTTP/1.0 without "keep-alive"
	Expect bool    // 100-continue is awaited before the body (HTTP/1.1 with a body only)
}

// Parse reads a whole head: request line, field lines, and the empty line that ends it. The error is a *Refusal.
func (r *Request) Parse(head string) error { panic("not yet") }

// Values returns the values of a field by its name, in any case, in order; nil where there is none. Each call allocates where
// there is any.
func (r *Request) Values(name string) []string { return valuesOf(r.Fields, name) }

// Names reports whether the Connection fields name a field, in any case: it belongs to this hop alone (RFC 9110, section 7.6.1).
func (r *Request) Names(field string) bool { panic("not yet") }

func valuesOf(fields []Field, name string) []string { panic("not yet") }
