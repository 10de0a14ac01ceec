package wire

import (
	"net/http"
	"strconv"
)

// AppendField appends one field line. The name and the value must come from a parsed head, or be
// ours.
func AppendField(dst []byte, name, value string) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(append(dst, value...), "\r\n"...)
}

// AppendStatus appends a status line of HTTP/1.1. The status must be within 100–999. An empty
// reason means http.StatusText's, which may be empty too.
func AppendStatus(dst []byte, status int, reason string) []byte {
	if reason == "" {
		reason = http.StatusText(status)
	}
	dst = strconv.AppendInt(append(dst, "HTTP/1.1 "...), int64(status), 10)
	dst = append(append(dst, ' '), reason...)
	return append(dst, "\r\n"...)
}
