package wire

import "strings"

// A MalformedError is why a request of HTTP/2 is malformed (RFC 9113, section 8.1.1): its stream
// ends with PROTOCOL_ERROR, after an answer with the status or without one. Requests that are
// refused for other reasons have a *Refusal alone.
type MalformedError struct{ *Refusal }

func (e *MalformedError) Unwrap() error { return e.Refusal }

// What HTTP/2 does not allow in the head of a request, beside the table of HTTP/1.1.
var (
	pseudoAfter   = &MalformedError{&Refusal{400, "a pseudo-field after other fields"}}
	pseudoTwice   = &MalformedError{&Refusal{400, "a pseudo-field that comes twice"}}
	pseudoUnknown = &MalformedError{&Refusal{400, "a pseudo-field that requests do not have"}}
	pseudoMissing = &MalformedError{&Refusal{400, "a request without :method, :scheme or :path"}}
	pseudoTrailer = &MalformedError{&Refusal{400, "a pseudo-field in a trailer"}}
	otherScheme   = &MalformedError{&Refusal{400, "a scheme other than http and https"}}
	emptyPath     = &MalformedError{&Refusal{400, "an empty :path"}}
	connectFields = &MalformedError{&Refusal{400, "a CONNECT with :scheme or :path, or without :authority"}}
	otherProtocol = &Refusal{501, "a :protocol other than websocket"}
	protocolFor   = &MalformedError{&Refusal{400, "a :protocol of another method than CONNECT"}}
	otherHost     = &MalformedError{&Refusal{400, "a Host that differs from :authority"}}
	namesInLower  = &MalformedError{&Refusal{400, "a field's name with capital letters, or bytes that are not part of a token"}}
	valueBytes    = &MalformedError{&Refusal{400, "a field's value with control bytes, or blanks around it"}}
	ofConnection  = &MalformedError{&Refusal{400, "a field of the connection, which HTTP/2 does not have"}}
	teOther       = &MalformedError{&Refusal{400, "a TE other than trailers"}}
	lengthOfNone  = &MalformedError{&Refusal{400, "a Content-Length of a request that ends with its head"}}
)

// ParseFields is Parse for a request of HTTP/2: fields are the decoded ones in their order, and
// ends is true if the stream ends with them. It checks them by the same table as Parse. Fields has
// the regular ones afterwards, in the memory of fields, with Cookie in one line (RFC 9113, section
// 8.2.3). An extended CONNECT for a websocket (RFC 8441) is read as the request by which HTTP/1.1
// asks for one: Protocol is set, and Method is GET. Any other CONNECT has the Target "/". The error
// is a *Refusal or a *MalformedError.
func (r *Request) ParseFields(fields []Field, ends bool) error {
	named := r.framing.named[:0]
	*r = Request{Fields: fields[:0], Minor: 1, framing: framing{named: named}}
	var p pseudo
	n := 0
	for ; n < len(fields) && strings.HasPrefix(fields[n].Name, ":"); n++ {
		if err := p.read(&fields[n]); err != nil {
			return err
		}
	}
	regular := fields[n:]
	if err := r.regular(regular); err != nil {
		return err
	}
	if err := p.check(r); err != nil {
		return err
	}
	// the regular fields move to the front, so that the memory can be used again
	r.Fields = joinCookies(append(fields[:0], regular...))
	return r.judgeFields(ends)
}

// The pseudo-fields of requests.
const (
	pseudoMethod = 1 << iota
	pseudoScheme
	pseudoAuthority
	pseudoPath
	pseudoProtocol
)

// pseudo are the pseudo-fields of a request.
type pseudo struct {
	has                                       uint8
	method, scheme, authority, path, protocol string
}

func (p *pseudo) read(f *Field) error {
	var bit uint8
	var value *string
	switch f.Name {
	case ":method":
		bit, value = pseudoMethod, &p.method
	case ":scheme":
		bit, value = pseudoScheme, &p.scheme
	case ":authority":
		bit, value = pseudoAuthority, &p.authority
	case ":path":
		bit, value = pseudoPath, &p.path
	case ":protocol":
		bit, value = pseudoProtocol, &p.protocol
	default:
		return pseudoUnknown
	}
	if p.has&bit != 0 {
		return pseudoTwice
	}
	p.has |= bit
	*value = f.Value
	return nil
}

// check sets what the pseudo-fields say of the request. Its Host is that of the regular field, or
// empty.
func (p *pseudo) check(r *Request) error {
	const whole = pseudoMethod | pseudoScheme | pseudoPath
	switch {
	case p.has&pseudoMethod != 0 && !IsToken(p.method):
		return &MalformedError{badMethod}
	case p.method == "CONNECT" && p.has&pseudoProtocol == 0:
		if p.has&(pseudoScheme|pseudoPath) != 0 || p.authority == "" {
			return connectFields
		}
		r.Method, r.Target, r.Host, r.hosts = p.method, "/", p.authority, 1
		return nil
	case p.has&whole != whole:
		return pseudoMissing
	case p.scheme != "http" && p.scheme != "https":
		return otherScheme
	case p.path == "":
		return emptyPath
	case p.has&pseudoProtocol != 0 && p.method != "CONNECT":
		return protocolFor
	case p.has&pseudoProtocol != 0 && p.protocol != "websocket":
		return otherProtocol
	}
	if p.has&pseudoAuthority != 0 {
		if r.hosts > 0 && !EqualFold(r.Host, p.authority) {
			return otherHost
		}
		r.Host, r.hosts = p.authority, 1
	}
	r.Method, r.Target, r.Protocol = p.method, p.path, p.protocol
	if p.protocol != "" {
		r.Method = "GET"
	}
	return checkTarget(r.Method, p.path)
}

// checkTarget returns what a request line could not have as its target.
func checkTarget(method, target string) error {
	switch {
	case plain(target, 0, '!') != len(target):
		return badTarget
	case strings.IndexByte(target, '#') >= 0:
		return targetFragment
	case target[0] != '/' && (target != "*" || method != "OPTIONS"):
		return targetNoSlash
	}
	return nil
}

// regular checks the bytes of the regular fields, and reads Host.
func (r *Request) regular(fields []Field) error {
	for i := range fields {
		f := &fields[i]
		if err := checkField(f); err != nil {
			return err
		}
		switch len(f.Name) {
		case len("te"):
			if f.Name == "te" && !EqualFold(f.Value, "trailers") {
				return teOther
			}
		case len("host"):
			if f.Name == "host" {
				if r.hosts++; r.hosts > 1 {
					return manyHosts
				}
				r.Host = f.Value
			}
		case len("upgrade"), len("connection"), len("proxy-connection"), len("transfer-encoding"):
			switch f.Name {
			case "upgrade", "connection", "keep-alive", "proxy-connection", "transfer-encoding":
				return ofConnection
			}
		}
	}
	return nil
}

// checkField checks the bytes of a field (RFC 9113, section 8.2.1).
func checkField(f *Field) error {
	if f.Name == "" {
		return namesInLower
	}
	for i := range len(f.Name) {
		if c := f.Name[i]; classes[c]&inToken == 0 || c >= 'A' && c <= 'Z' {
			if c == ':' && i == 0 {
				return pseudoAfter
			}
			return namesInLower
		}
	}
	v := f.Value
	if v == "" {
		return nil
	}
	if valueEnd(v, 0) != len(v) || isBlank(v[0]) || isBlank(v[len(v)-1]) {
		return valueBytes
	}
	return nil
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// joinCookies joins the lines of Cookie into the first of them.
func joinCookies(fields []Field) []Field {
	first, joined := -1, ""
	for i := 0; i < len(fields); i++ {
		switch {
		case fields[i].Name != "cookie":
		case first < 0:
			first, joined = i, fields[i].Value
		default:
			joined += "; " + fields[i].Value
			fields = append(fields[:i], fields[i+1:]...)
			i--
		}
	}
	if first >= 0 {
		fields[first].Value = joined
	}
	return fields
}

// judgeFields reads the length of the body, and checks Host and Expect.
func (r *Request) judgeFields(ends bool) error {
	unmet, expects := false, false
	for i := range r.Fields {
		f := &r.Fields[i]
		switch len(f.Name) {
		case len("expect"):
			if f.Name == "expect" {
				expects = true
				unmet = unmet || !EqualFold(f.Value, "100-continue")
			}
		case len("content-length"), len("transfer-encoding"):
			if refusal := r.framing.look(f); refusal != nil {
				return &MalformedError{refusal}
			}
			if disguised(f.Name) {
				return disguisedFraming
			}
		}
	}
	switch {
	case !ValidHost(r.Host):
		return BadHost
	case ends && r.framing.length > 0:
		return lengthOfNone
	case r.Protocol != "" || ends:
	case r.framing.lengths > 0:
		r.Length = r.framing.length
	default:
		r.Length = Chunked
	}
	switch {
	case unmet:
		return badExpect
	case r.Host == "" && r.hosts == 0:
		return noHost
	}
	r.Expect = expects && r.Length != 0
	return nil
}

// CheckTrailers returns why the fields of a request of HTTP/2 cannot be trailers: a
// *MalformedError, or a *Refusal; nil if they can. Some of them may be fields that must not trail
// (MayTrail): nobody can take them for another framing here, so the rest of the request is good.
func CheckTrailers(fields []Field) error {
	size := 0
	for i := range fields {
		if strings.HasPrefix(fields[i].Name, ":") {
			return pseudoTrailer
		}
		if err := checkField(&fields[i]); err != nil {
			return err
		}
		size += len(fields[i].Name) + len(fields[i].Value) + len(": \r\n")
	}
	if len(fields) > MaxTrailerFields || size > MaxTrailerBytes {
		return longTrailers
	}
	return nil
}
