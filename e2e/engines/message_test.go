package engines

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A field is one field line: the name in lower case, the value without surrounding blanks.
type field struct{ name, value string }

// A message is a request or an answer as it was received.
type message struct {
	first    string // the request line or the status line
	fields   []field
	body     string
	trailers []field
	cut      bool   // the body broke off
	tunnel   string // what came after a 101
}

// values returns the values of one field, in order.
func (m *message) values(name string) []string {
	var all []string
	for _, f := range m.fields {
		if f.name == name {
			all = append(all, f.value)
		}
	}
	return all
}

// has reports whether a field has exactly this value.
func (m *message) has(name, value string) bool {
	got := m.values(name)
	return len(got) == 1 && strings.EqualFold(got[0], value)
}

// maxHead is more than any subject forwards.
const maxHead = 1 << 20

// readHead reads lines up to the empty one. Every line ends with CRLF, and contains no CR, LF or
// NUL. It returns io.EOF at the end of the input.
func readHead(r *bufio.Reader) (*message, error) {
	var head []byte
	for !strings.HasSuffix(string(head[max(0, len(head)-4):]), "\r\n\r\n") {
		c, err := r.ReadByte()
		switch {
		case err != nil && len(head) == 0:
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("half a head, %.200q: %w", head, err)
		case len(head) == maxHead:
			return nil, fmt.Errorf("a head that does not end, %.200q", head)
		}
		head = append(head, c)
	}
	lines := strings.Split(strings.TrimSuffix(string(head), "\r\n\r\n"), "\r\n")
	fields, err := readFields(lines[1:])
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(lines[0], "\r\n\x00") {
		return nil, fmt.Errorf("the first line %.200q holds more than one", lines[0])
	}
	return &message{first: lines[0], fields: fields}, nil
}

func readFields(lines []string) ([]field, error) {
	var fields []field
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") || strings.ContainsAny(line, "\r\n\x00") {
			return nil, fmt.Errorf("%.200q is not a field line", line)
		}
		fields = append(fields, field{strings.ToLower(name), strings.Trim(value, " \t")})
	}
	slices.SortStableFunc(fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return fields, nil
}

var errTwoLengths = errors.New("a message with two lengths")

// framing returns the length of the body: -1 means chunks, -2 that none is given.
func (m *message) framing() (int64, error) {
	coding, length := m.values("transfer-encoding"), m.values("content-length")
	switch {
	case len(coding)+len(length) > 1:
		return 0, errTwoLengths
	case len(coding) == 1 && coding[0] == "chunked":
		return -1, nil
	case len(coding) == 1:
		return 0, fmt.Errorf("the transfer coding %q", coding[0])
	case len(length) == 0:
		return -2, nil
	}
	if strings.Trim(length[0], "0123456789") != "" {
		return 0, fmt.Errorf("the length %q", length[0])
	}
	return strconv.ParseInt(length[0], 10, 64)
}

// readBody reads a body with that framing. A body that breaks off is marked as cut;
// an invalid body is an error.
func (m *message) readBody(r *bufio.Reader, length int64) error {
	if length == -1 {
		return m.readChunks(r)
	}
	body, err := io.ReadAll(io.LimitReader(r, length))
	m.body, m.cut = string(body), err != nil || int64(len(body)) < length
	return nil
}

func (m *message) readChunks(r *bufio.Reader) error {
	for {
		line, err := readLine(r)
		if err != nil {
			return m.broken(err)
		}
		size, err := strconv.ParseUint(line, 16, 31) // no sign, no 0x, no extension
		if err != nil {
			return fmt.Errorf("the chunk size %.100q", line)
		}
		if size == 0 {
			return m.readTrailers(r)
		}
		chunk := make([]byte, size+2)
		n, err := io.ReadFull(r, chunk)
		m.body += string(chunk[:min(uint64(n), size)])
		if err != nil {
			return m.broken(err)
		}
		if string(chunk[size:]) != "\r\n" {
			return fmt.Errorf("%q after a chunk", chunk[size:])
		}
	}
}

func (m *message) readTrailers(r *bufio.Reader) error {
	var lines []string
	for {
		line, err := readLine(r)
		if err != nil {
			return m.broken(err)
		}
		if line == "" {
			break
		}
		lines = append(lines, line)
	}
	var err error
	m.trailers, err = readFields(lines)
	return err
}

// broken records a body that ends with its connection; every other error is returned.
func (m *message) broken(err error) error {
	var strange *lineError
	if errors.As(err, &strange) {
		return err
	}
	m.cut = true
	return nil
}

type lineError struct{ line string }

func (e *lineError) Error() string {
	return fmt.Sprintf("%.200q is no line that ends with CRLF", e.line)
}

func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !ok || strings.ContainsAny(text, "\r\x00") {
		return "", &lineError{line}
	}
	return text, nil
}
