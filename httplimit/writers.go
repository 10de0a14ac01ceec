package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"reflect"
	"sync/atomic"
)

// A handler asks its ResponseWriter for optional interfaces, and behaves differently without them.
// So it gets a writer with exactly the interfaces of the server's writer. Each of the types below
// adds one method to another type, and together they are all sixteen combinations. Each is one
// pointer, so that converting it to an interface does not allocate.
type (
	withF    struct{ *response } // F: http.Flusher
	withH    struct{ *response } // H: http.Hijacker
	withR    struct{ *response } // R: io.ReaderFrom, with which io.Copy uses sendfile
	withP    struct{ *response } // P: http.Pusher
	withFH   struct{ withF }
	withFR   struct{ withF }
	withHR   struct{ withH }
	withFHR  struct{ withFH }
	withFP   struct{ withF }
	withHP   struct{ withH }
	withRP   struct{ withR }
	withFHP  struct{ withFH }
	withFRP  struct{ withFR }
	withHRP  struct{ withHR }
	withFHRP struct{ withFHR }
)

func (x withF) Flush() { _ = x.FlushError() }

func (x withH) Hijack() (net.Conn, *bufio.ReadWriter, error)  { return x.hijack() }
func (x withFH) Hijack() (net.Conn, *bufio.ReadWriter, error) { return x.hijack() }

func (x withR) ReadFrom(src io.Reader) (int64, error)   { return x.readFrom(src) }
func (x withFR) ReadFrom(src io.Reader) (int64, error)  { return x.readFrom(src) }
func (x withHR) ReadFrom(src io.Reader) (int64, error)  { return x.readFrom(src) }
func (x withFHR) ReadFrom(src io.Reader) (int64, error) { return x.readFrom(src) }

func (x withP) Push(target string, o *http.PushOptions) error    { return x.push(target, o) }
func (x withFP) Push(target string, o *http.PushOptions) error   { return x.push(target, o) }
func (x withHP) Push(target string, o *http.PushOptions) error   { return x.push(target, o) }
func (x withRP) Push(target string, o *http.PushOptions) error   { return x.push(target, o) }
func (x withFHP) Push(target string, o *http.PushOptions) error  { return x.push(target, o) }
func (x withFRP) Push(target string, o *http.PushOptions) error  { return x.push(target, o) }
func (x withHRP) Push(target string, o *http.PushOptions) error  { return x.push(target, o) }
func (x withFHRP) Push(target string, o *http.PushOptions) error { return x.push(target, o) }

const (
	hasF = 1 << iota
	hasH
	hasR
	hasP
)

// withInterfaces returns x as the type that has the interfaces of the writer under it. A Hijacker
// that http.ResponseController would unwrap to counts as well: x has to see that call.
func (x *response) withInterfaces(seen *seenWriter) http.ResponseWriter {
	has := seen.interfaces(x.ResponseWriter)
	if has&hasP != 0 {
		return x.withPusher(has)
	}
	f := withF{x}
	switch has {
	case hasF:
		return f
	case hasH:
		return withH{x}
	case hasR:
		return withR{x}
	case hasF | hasH:
		return withFH{f}
	case hasF | hasR:
		return withFR{f}
	case hasH | hasR:
		return withHR{withH{x}}
	case hasF | hasH | hasR:
		return withFHR{withFH{f}}
	}
	return x
}

// interfacesOf returns which optional interfaces w has.
func interfacesOf(w http.ResponseWriter) (has int) {
	if _, ok := w.(http.Flusher); ok {
		has |= hasF
	}
	if reaches[http.Hijacker](w) {
		has |= hasH
	}
	if _, ok := w.(io.ReaderFrom); ok {
		has |= hasR
	}
	if _, ok := w.(http.Pusher); ok {
		has |= hasP
	}
	return has
}

// A seenWriter caches the interfaces of the last type of writer, because nearly all requests have
// the server's own type. A writer that unwraps is not cached, because it can unwrap to any type.
type seenWriter struct{ last atomic.Pointer[writerType] }

type writerType struct {
	of  reflect.Type
	has int
}

func (s *seenWriter) interfaces(w http.ResponseWriter) int {
	of := reflect.TypeOf(w)
	if last := s.last.Load(); last != nil && last.of == of {
		return last.has
	}
	has := interfacesOf(w)
	if _, unwraps := w.(interface{ Unwrap() http.ResponseWriter }); !unwraps {
		s.last.Store(&writerType{of, has})
	}
	return has
}

func (x *response) withPusher(has int) http.ResponseWriter {
	f := withF{x}
	switch has &^ hasP {
	case hasF:
		return withFP{f}
	case hasH:
		return withHP{withH{x}}
	case hasR:
		return withRP{withR{x}}
	case hasF | hasH:
		return withFHP{withFH{f}}
	case hasF | hasR:
		return withFRP{withFR{f}}
	case hasH | hasR:
		return withHRP{withHR{withH{x}}}
	case hasF | hasH | hasR:
		return withFHRP{withFHR{withFH{f}}}
	}
	return withP{x}
}

// hijack gives the connection to the handler, with the fields of the answer in the header:
// httputil.ReverseProxy writes its 101 with that header.
func (x *response) hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err == nil {
		x.hijacked = true
		if !x.wrote {
			x.stamp(x.Header(), http.StatusSwitchingProtocols)
		}
		if e := x.exchange; e != nil && e.answer.Settles() {
			c, rw = e.hold(c, rw)
		}
	}
	return c, rw, err
}

// readFrom writes the header only after the first bytes have arrived, like the server's own
// ReadFrom. If src is the request's body, the client may wait for 100 Continue, which is not sent
// after the header.
func (x *response) readFrom(src io.Reader) (n int64, err error) {
	if !x.wrote {
		const first = 512 // what net/http reads to detect the type, before it uses sendfile
		n, err = io.CopyN(writerOnly{x}, src, first)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	if x.isRead() {
		most, err := x.sendMost(src)
		if n += most; err != nil {
			return n, err
		}
		src = source{src, x}
	}
	rest, err := x.ResponseWriter.(io.ReaderFrom).ReadFrom(src)
	return n + rest, err
}

// sendMost leaves all but the last bytes of a response to the server's ReadFrom, which can use
// sendfile, if only its end is to be noticed.
func (x *response) sendMost(src io.Reader) (n int64, err error) {
	const last = 512
	e := x.exchange
	if e.reads || e.left <= last {
		return 0, nil
	}
	part := &io.LimitedReader{R: src, N: e.left - last}
	limited, ok := src.(*io.LimitedReader)
	if ok { // sendfile wants the file right under it
		part.R, part.N = limited.R, min(part.N, limited.N)
	}
	n, err = x.ResponseWriter.(io.ReaderFrom).ReadFrom(part)
	if e.left -= n; ok {
		limited.N -= n
	}
	return n, err
}

// writerOnly hides everything but Write from io.Copy.
type writerOnly struct{ io.Writer }

func (x *response) push(target string, o *http.PushOptions) error {
	return x.ResponseWriter.(http.Pusher).Push(target, o)
}
