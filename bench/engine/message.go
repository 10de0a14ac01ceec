package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

const (
	bodyBytes  = 10 << 20
	smallPath  = "/api/v1/widget/typing"
	largePath  = "/api/large" // nginx's configuration names these two
	uploadPath = "/api/upload"
	// dialsPath is answered by the upstream with the number of connections it has accepted.
	dialsPath = "/connections"
)

// A message is the head of a request or of an answer.
type message struct {
	head   []byte
	length int64 // from Content-Length; -1: none
	beyond int   // how many bytes of the body were read with it
}

var (
	headEnd       = []byte("\r\n\r\n")
	contentLength = []byte("Content-Length")
)

// readHead reads a head of at most len(buf) bytes.
func readHead(r io.Reader, buf []byte) (m message, err error) {
	for n := 0; n < len(buf); {
		k, err := r.Read(buf[n:])
		n += k
		if i := bytes.Index(buf[:n], headEnd); i >= 0 {
			return parseHead(buf[:i+len(headEnd)], n-i-len(headEnd))
		}
		if err == io.EOF && n > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return m, err
		}
	}
	return m, fmt.Errorf("a head of more than %d bytes", len(buf))
}

// parseHead allocates nothing: a load reads many heads.
func parseHead(head []byte, beyond int) (message, error) {
	m := message{head: head, length: -1, beyond: beyond}
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		name, value, ok := bytes.Cut(line, []byte(":"))
		if ok && bytes.EqualFold(name, contentLength) {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			if err != nil {
				return m, fmt.Errorf("read Content-Length: %w", err)
			}
			m.length = n
		}
	}
	return m, nil
}

// status returns an answer's status, or 0 if it is no answer.
func (m message) status() int {
	if len(m.head) < len("HTTP/1.1 200") {
		return 0
	}
	n, _ := strconv.Atoi(string(m.head[9:12]))
	return n
}

// sendBody completes and sends a head, and then the file.
func sendBody(c *net.TCPConn, head string, file *os.File) error {
	if _, err := fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n", head, bodyBytes); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := c.ReadFrom(io.LimitReader(file, bodyBytes)) // sendfile
	return err
}
