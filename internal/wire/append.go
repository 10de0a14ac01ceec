package wire

// AppendField appends one field line. The name and the value must come from a parsed head, or be ours.
func AppendField(dst []byte, name, value string) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(append(dst, value...), "\r\n"...)
}

// AppendStatus appends a status line of HTTP/1.1. An empty reason means the standard's own words for that status.
func AppendStatus(dst []byte, status int, reason string) []byte { panic("not yet") }

// AppendChunk appends a chunk's size line; the bytes and "\r\n" are to follow. 0 is the last chunk: trailer lines and an
// empty line are to follow.
func AppendChunk(dst []byte, size int) []byte { panic("not yet") }
