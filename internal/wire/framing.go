package wire

import (
	"math"
	"strings"
)

// A framing is how a head's fields frame the body, and whether the connection continues.
type framing struct {
	length  int64 // of Content-Length
	lengths int   // the number of such lines
	coding  string
	codings int // Transfer-Encoding lines
	close   bool
	keep    bool
	named   []string // connection options but close and keep-alive
}

// look reads one field, if it is one of framing, of a response or a request.
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
				return manyCodings
			}
			f.coding = field.Value
		}
	}
	return nil
}

func (f *framing) contentLength(value string) *Refusal {
	if f.lengths++; f.lengths > 1 {
		return manyLengths
	}
	if value == "" || len(value) > 19 {
		return badLength
	}
	n := uint64(0) // 19 digits fit
	for i := range len(value) {
		digit := value[i] - '0'
		if digit > 9 {
			return lengthNotDigits
		}
		n = n*10 + uint64(digit)
	}
	if n > math.MaxInt64 {
		return hugeLength
	}
	f.length = int64(n)
	return nil
}

// connection reads one Connection line: tokens between commas. Empty elements are ignored (RFC
// 9110, section 5.6.1.2).
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
			return badOption
		case len(f.named) == MaxNamed:
			return tooManyOptions
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
		return false, lengthAndCoding
	case minor == 0:
		return false, codingInHTTP10
	case EqualFold(f.coding, "chunked"):
		return true, nil
	}
	return false, badCoding(f.coding)
}

// badCoding returns why a Transfer-Encoding that is not "chunked" is refused: it does not define
// the end of the body (400), or asks for codings that this package does not have (501).
func badCoding(list string) *Refusal {
	last := false // chunked was the last element so far
	for more := true; more; {
		var coding string
		coding, list, more = strings.Cut(list, ",")
		coding, parameters, _ := strings.Cut(coding, ";")
		coding = strings.Trim(coding, " \t")
		switch {
		case !IsToken(coding):
			return badCodingList
		case last:
			return afterChunked
		}
		last = EqualFold(coding, "chunked")
		if last && parameters != "" {
			return chunkedParameters
		}
	}
	return otherCoding
}
