package main

import (
	"bufio"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// limited makes a gin.HandlerFunc of net/http middleware such as httplimit.Limit's. The parameters
// of gin's route are path values of the request.
func limited(limit func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		for _, p := range c.Params {
			c.Request.SetPathValue(p.Key, p.Value)
		}
		admitted := false
		limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			admitted = true
			own, request := c.Writer, c.Request
			x := &writer{ResponseWriter: own, limited: w}
			c.Writer, c.Request = x, r
			defer func() { c.Writer, c.Request = own, request }()
			c.Next()
			x.stamp() // gin writes the head of an empty response later
		})).ServeHTTP(c.Writer, c.Request)
		if !admitted {
			c.Abort()
		}
	}
}

// A writer is gin's, and writes by the limiter's. A status is only noted until the head is written.
type writer struct {
	gin.ResponseWriter
	limited http.ResponseWriter
	stamped bool
}

// stamp has the limiter add its fields.
func (w *writer) stamp() {
	if !w.stamped && !w.Written() {
		w.limited.WriteHeader(w.Status())
	}
	w.stamped = true
}

func (w *writer) WriteHeaderNow() {
	w.stamp()
	w.ResponseWriter.WriteHeaderNow()
}

func (w *writer) Write(p []byte) (int, error) {
	w.stamp()
	return w.limited.Write(p)
}

func (w *writer) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *writer) Flush() {
	w.stamp()
	_ = http.NewResponseController(w.limited).Flush() // gin's own has no error either
}

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.stamped = true
	return http.NewResponseController(w.limited).Hijack()
}

// Unwrap is for http.ResponseController and for httplimit.Settle.
func (w *writer) Unwrap() http.ResponseWriter { return w.limited }
