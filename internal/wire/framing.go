package wire

import (
	"math"
	"strings"
)

// A framing is what a head's fields say of the body and of the connection.
type framing struct {
	length  int64 // what Content-Length says
	lengths int   // how many such lines there are
	coding  string
	codings int // Transfer-Encoding lines
	close   bool
	keep    bool
	named   []string // connection options but close and keep-alive
}

// look takes in one field where it is one of framing; response heads and request heads alike.
func (f *framing) look(field *Field) *Refusal {
	switch len(field.Name) {
	case len("Connection"):
		if EqualFold(field.Name, "Connection") {
			return f.connection(field.Value)
		}
	case len("Content-Length"):
		if EqualFold(field.Name, "Content-Length") {
			return f.contentLength(field.Value)
		}
	case len("Transfer-Encoding"):
		if EqualFold(field.Name, "Transfer-Encoding") {
			if f.codings++; f.codings > 1 {
				return &Refusal{400, "more than one Transfer-Encoding line"}
			}
			f.coding = field.Value
		}
	}
	return nil
}

func (f *framing) contentLength(value string) *Refusal {
	if f.lengths++; f.lengths > 1 {
		return &Refusal{400, "more than one Content-Length line"}
	}
	if value == "" || len(value) > 19 {
		return &Refusal{400, "a Content-Length that is no number of at most 19 digits"}
	}
	n := uint64(0) // 19 digits fit
	for i := range len(value) {
		digit := value[i] - '0'
		if digit > 9 {
			return &Refusal{400, "a Content-Length that is not digits alone"}
		}
		n = n*10 + uint64(digit)
	}
	if n > math.MaxInt64 {
		return &Refusal{400, "a Content-Length beyond 63 bits"}
	}
	f.length = int64(n)
	return nil
}

// connection takes in one Connection line: tokens between commas. Empty elements are ignored (RFC 9110, section 5.6.1.2).
func (f *framing) connection(value string) *Refusal {
	for value != "" {
		var option string
		option, value = element(value)
		switch {
		case option == "":
		case EqualFold(option, "close"):
			f.close = true
		case EqualFold(option, "keep-alive"):
			f.keep = true
		case !IsToken(option):
			return &Refusal{400, "a connection option that is no token"}
		case len(f.named) == MostNamed:
			return &Refusal{431, "more connection options than allowed"}
		default:
			f.named = append(f.named, option)
		}
	}
	return nil
}

// element cuts the first element off a list with commas.
func element(list string) (first, rest string) {
	first, rest, _ = strings.Cut(list, ",")
	return strings.Trim(first, " \t"), rest
}

func (f *framing) names(field string) bool {
	for _, name := range f.named {
		if EqualFold(name, field) {
			return true
		}
	}
	return false
}

// chunked reports whether the body comes in chunks, which is the only coding there is.
func (f *framing) chunked(minor int) (bool, *Refusal) {
	switch {
	case f.codings == 0:
		return false, nil
	case f.lengths > 0:
		return false, &Refusal{400, "both Content-Length and Transfer-Encoding"}
	case minor == 0:
		return false, &Refusal{400, "a Transfer-Encoding in HTTP/1.0"}
	case EqualFold(f.coding, "chunked"):
		return true, nil
	}
	return false, badCoding(f.coding)
}

// badCoding says why a Transfer-Encoding that is not "chunked" is refused: it is a list that leaves the end of the body open
// (400), or asks for codings that are not spoken here (501).
func badCoding(list string) *Refusal {
	last := false // chunked was the last element so far
	for more := true; more; {
		var coding string
		coding, list, more = strings.Cut(list, ",")
		coding, parameters, _ := strings.Cut(coding, ";")
		coding = strings.Trim(coding, " \t")
		switch {
		case !IsToken(coding):
			return &Refusal{400, "a Transfer-Encoding that is no list of codings"}
		case last:
			return &Refusal{400, "a Transfer-Encoding with something behind chunked"}
		}
		last = EqualFold(coding, "chunked")
		if last && parameters != "" {
			return &Refusal{400, "a Transfer-Encoding of chunked with parameters"}
		}
	}
	return &Refusal{501, "a Transfer-Encoding other than chunked"}
}
