package httplimit_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/httplimit"
)

// A recorder records the calls to the server's writer. Embedding combines the four
// types of methods below.
type recorder struct {
	header http.Header
	calls  []string
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(status int) {
	ours := headers.Limit // with the spelling that is sent
	r.calls = append(r.calls, "head "+http.StatusText(status)+" "+strings.Join(r.header[ours], ","))
}
func (r *recorder) Write(p []byte) (int, error) {
	r.calls = append(r.calls, "write")
	return len(p), nil
}

type (
	flusher    struct{ r *recorder }
	hijacker   struct{ r *recorder }
	readerFrom struct{ r *recorder }
	pusher     struct{ r *recorder }
)

func (f flusher) Flush() { f.r.calls = append(f.r.calls, "flush") }
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h.r.calls = append(h.r.calls, "hijack")
	return nil, nil, nil
}
func (f readerFrom) ReadFrom(src io.Reader) (int64, error) {
	f.r.calls = append(f.r.calls, "readfrom")
	return io.Copy(io.Discard, src)
}
func (p pusher) Push(string, *http.PushOptions) error {
	p.r.calls = append(p.r.calls, "push")
	return nil
}

// combination returns r with the interfaces whose bits are set: flusher 1, hijacker 2, readerFrom
// 4, pusher 8.
func combination(bits int, r *recorder) http.ResponseWriter {
	f, h, c, p := flusher{r}, hijacker{r}, readerFrom{r}, pusher{r}
	return [16]http.ResponseWriter{
		struct{ *recorder }{r},
		struct {
			*recorder
			flusher
		}{r, f},
		struct {
			*recorder
			hijacker
		}{r, h},
		struct {
			*recorder
			flusher
			hijacker
		}{r, f, h},
		struct {
			*recorder
			readerFrom
		}{r, c},
		struct {
			*recorder
			flusher
			readerFrom
		}{r, f, c},
		struct {
			*recorder
			hijacker
			readerFrom
		}{r, h, c},
		struct {
			*recorder
			flusher
			hijacker
			readerFrom
		}{r, f, h, c},
		struct {
			*recorder
			pusher
		}{r, p},
		struct {
			*recorder
			flusher
			pusher
		}{r, f, p},
		struct {
			*recorder
			hijacker
			pusher
		}{r, h, p},
		struct {
			*recorder
			flusher
			hijacker
			pusher
		}{r, f, h, p},
		struct {
			*recorder
			readerFrom
			pusher
		}{r, c, p},
		struct {
			*recorder
			flusher
			readerFrom
			pusher
		}{r, f, c, p},
		struct {
			*recorder
			hijacker
			readerFrom
			pusher
		}{r, h, c, p},
		struct {
			*recorder
			flusher
			hijacker
			readerFrom
			pusher
		}{r, f, h, c, p},
	}[bits]
}

// A handler gets exactly the optional interfaces that it would have without the
// limiter. Each works, and writes the fields first.
func TestTheWriterHasExactlyTheServersInterfaces(t *testing.T) {
	m := perIP(t, weir.MaxLimit, httplimit.Options{})
	const head = "head OK 2147483647"
	for bits := range 16 {
		for _, use := range []struct {
			name  string
			bit   int
			call  func(w http.ResponseWriter) (has bool)
			calls string
		}{
			{"Flusher", 1, func(w http.ResponseWriter) bool {
				f, has := w.(http.Flusher)
				if has {
					f.Flush()
				}
				return has
			}, head + " flush"},
			{"Hijacker", 2, func(w http.ResponseWriter) bool {
				h, has := w.(http.Hijacker)
				if has {
					_, _, _ = h.Hijack()
				}
				return has
			}, "hijack"},
			{"ReaderFrom", 4, func(w http.ResponseWriter) bool {
				_, has := w.(io.ReaderFrom)
				if has {
					_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 1024))})
				}
				return has
			}, head + " write readfrom"},
			{"Pusher", 8, func(w http.ResponseWriter) bool {
				p, has := w.(http.Pusher)
				if has {
					_ = p.Push("/", nil)
				}
				return has
			}, "push " + head},
		} {
			r := &recorder{header: http.Header{}}
			m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if has := use.call(w); has != (bits&use.bit != 0) {
					t.Errorf("combination %04b: the writer has http.%s: %v", bits, use.name, has)
				}
			})).ServeHTTP(combination(bits, r), typing(t))
			want := head // a handler that writes nothing sends a 200
			if bits&use.bit != 0 {
				want = use.calls
			}
			if got := strings.Join(r.calls, " "); got != want {
				t.Errorf("combination %04b, http.%s: the server's writer got %q, want %q", bits, use.name, got, want)
			}
		}
	}
}

// http.ResponseController works through our writer. If the server's writer lacks a
// method, the controller returns an error before anything is written.
func TestAResponseControllerWorksThroughTheWriter(t *testing.T) {
	m := perIP(t, weir.MaxLimit, httplimit.Options{})
	for _, test := range []struct {
		bits        int
		flush, take error
	}{{0, http.ErrNotSupported, http.ErrNotSupported}, {1, nil, http.ErrNotSupported}, {3, nil, nil}} {
		for _, hidden := range []bool{false, true} {
			r := &recorder{header: http.Header{}}
			w := combination(test.bits, r)
			if hidden {
				w = unwrapper{w} // another middleware's writer, with only Unwrap
			}
			m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				control := http.NewResponseController(w)
				if _, found := w.(http.Flusher); found == (hidden || test.bits == 0) {
					t.Errorf("combination %04b, hidden %v: the writer has http.Flusher: %v", test.bits, hidden, found)
				}
				if err := control.Flush(); !errors.Is(err, test.flush) {
					t.Errorf("combination %04b: Flush is %v, want %v", test.bits, err, test.flush)
				}
				if test.flush != nil && len(r.calls) > 0 {
					t.Errorf("combination %04b: a refused Flush wrote %q", test.bits, r.calls)
				}
				if _, _, err := control.Hijack(); !errors.Is(err, test.take) {
					t.Errorf("combination %04b: Hijack is %v, want %v", test.bits, err, test.take)
				}
			})).ServeHTTP(w, typing(t))
			heads := 0
			for _, c := range r.calls {
				if strings.HasPrefix(c, "head") {
					heads++
				}
			}
			if heads != 1 {
				t.Errorf("combination %04b, hidden %v: the head was written %d times: %q", test.bits, hidden, heads, r.calls)
			}
		}
	}
}

// Deadlines and full duplex work through Unwrap, on the server's own writer.
func TestDeadlinesReachTheConnection(t *testing.T) {
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		control := http.NewResponseController(w)
		for name, err := range map[string]error{
			"SetReadDeadline":  control.SetReadDeadline(time.Now().Add(time.Minute)),
			"SetWriteDeadline": control.SetWriteDeadline(time.Now().Add(time.Minute)),
			"EnableFullDuplex": control.EnableFullDuplex(),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	e.send("POST /api/v1/widget/typing").want(200, 60, 59, 60)
}
