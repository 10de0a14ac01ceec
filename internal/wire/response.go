package wire

// A Response is the head of a response from an upstream. As with Request, its strings may be kept.
type Response struct {
	Minor  int
	Status int    // 100–999
	Reason string // as it came; may be empty
	Fields []Field
	// of the body: a number, Chunked, or UntilClose; 0 if the status or the method allows no body,
	// whatever the fields say
	Length int64
	// Declared is the Content-Length, also of an answer without a body (to HEAD, 304); -1: it has
	// none.
	Declared int64
	// Close is true if the connection cannot be used again: by its Connection or by HTTP/1.0,
	// because its body ends with the connection, or because it declares a body that it does not
	// have (to HEAD, 204, 304). That may come all the same, and would be taken for the next
	// response.
	Close bool

	framing framing
}

// Reset is Request.Reset.
func (r *Response) Reset() {
	*r = Response{Fields: forget(r.Fields), framing: framing{named: r.framing.named[:0]}}
	clear(r.framing.named[:cap(r.framing.named)])
}

// Parse reads a whole head of a response to a request of that method. It is as strict about the
// ends of lines and the framing of bodies as Request.Parse: an upstream that can be made to send
// two lengths must not be believed either. The error is a *Refusal of status
// 502.
func (r *Response) Parse(head, method string) error {
	if refusal := r.parse(head, method); refusal != nil {
		return &Refusal{502, refusal.Reason}
	}
	return nil
}

func (r *Response) parse(head, method string) *Refusal {
	fields, named := r.Fields[:0], r.framing.named[:0]
	if fields == nil {
		fields = make([]Field, 0, usualFields)
	}
	*r = Response{Fields: fields, Declared: -1, framing: framing{named: named}}
	at, refusal := r.line(head)
	if refusal != nil {
		return refusal
	}
	if r.Fields, refusal = fieldLines(r.Fields, head, at, MaxFields); refusal != nil {
		return refusal
	}
	for i := range r.Fields {
		if refusal := r.framing.look(&r.Fields[i]); refusal != nil {
			return refusal
		}
	}
	return r.judge(method)
}

// line reads the status line, and returns where the field lines begin.
func (r *Response) line(s string) (at int, refusal *Refusal) {
	const shortest = len("HTTP/1.1 200\r\n")
	if len(s) < shortest || s[:7] != "HTTP/1." || s[7] != '0' && s[7] != '1' || s[8] != ' ' {
		return 0, badByte(s, valueEnd(s, 0), badStatusLine)
	}
	if s[9] == '0' || !digit(s[9]) || !digit(s[10]) || !digit(s[11]) {
		return 0, badByte(s, valueEnd(s, 8), badStatus)
	}
	i := 12
	if s[i] == ' ' {
		i = valueEnd(s, i)
		r.Reason = s[13:i]
	}
	if len(s)-i < 2 || s[i] != '\r' || s[i+1] != '\n' {
		return 0, badByte(s, i, badReason)
	}
	r.Minor, r.Status = int(s[7]-'0'), int(s[9]-'0')*100+int(s[10]-'0')*10+int(s[11]-'0')
	return i + 2, nil
}

// judge finds which body follows (RFC 9112, section 6.3).
func (r *Response) judge(method string) *Refusal {
	f := &r.framing
	chunked, refusal := f.chunked(r.Minor)
	if refusal != nil {
		return refusal
	}
	if f.lengths > 0 {
		r.Declared = f.length
	}
	body := chunked || f.length > 0
	switch {
	case r.Status < 200 && body:
		return interimBody
	case r.Status < 200:
	case method == "HEAD", r.Status == 204, r.Status == 304:
		f.close = f.close || body
	case chunked:
		r.Length = Chunked
	case f.lengths > 0:
		r.Length = f.length
	default:
		r.Length = UntilClose
	}
	r.Close = f.close || r.Length == UntilClose || r.Minor == 0 && !f.keep
	return nil
}

// Values is Request.Values.
func (r *Response) Values(name string) []string { return valuesOf(r.Fields, name) }

// Names is Request.Names.
func (r *Response) Names(field string) bool { return r.framing.names(field) }
