package weircaddy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// A writer is Caddy's, under the limiter's. It knows whether the head of the response is written.
type writer struct {
	caddyhttp.ResponseWriterWrapper
	wrote    bool
	withheld bool // a head is not written
}

// withhold has the limiter add its fields, and settle by the status, without writing a head:
// Caddy makes a response of a handler's error when all handlers have returned, with the same
// header.
func (x *writer) withhold(limited http.ResponseWriter, failed error) {
	if x.wrote {
		return // the response is broken off
	}
	status := http.StatusInternalServerError
	var known caddyhttp.HandlerError
	if errors.As(failed, &known) && known.StatusCode >= 200 {
		status = known.StatusCode
	}
	x.withheld = true
	limited.WriteHeader(status)
	x.withheld = false
}

// WriteHeader implements http.ResponseWriter.
func (x *writer) WriteHeader(status int) {
	if x.withheld {
		return
	}
	x.wrote = x.wrote || status >= 200 || status == http.StatusSwitchingProtocols
	x.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (x *writer) Write(p []byte) (int, error) {
	x.wrote = true
	return x.ResponseWriter.Write(p)
}

// WriteString implements io.StringWriter.
func (x *writer) WriteString(s string) (int, error) {
	x.wrote = true
	return io.WriteString(x.ResponseWriter, s)
}

// ReadFrom implements io.ReaderFrom.
func (x *writer) ReadFrom(r io.Reader) (int64, error) {
	x.wrote = true
	return x.ResponseWriterWrapper.ReadFrom(r)
}

// FlushError is what http.ResponseController flushes with.
func (x *writer) FlushError() error {
	x.wrote = true
	return http.NewResponseController(x.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker.
func (x *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(x.ResponseWriter).Hijack()
	x.wrote = x.wrote || err == nil
	return c, rw, err
}
