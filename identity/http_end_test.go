package identity

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// A body that a server has closed, as it does when the response begins.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Read(p []byte) (int, error) {
	if c.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return c.Reader.Read(p)
}

func (c *closing) Close() error { c.closed = true; return nil }

// A proxy looks for the end of a body that it has sent when the response may have begun. If the
// body was read whole before, its end is known.
func TestABodyThatWasReadWholeEndsAlsoWhenItIsClosed(t *testing.T) {
	for limit, want := range map[int]error{100: nil, 4: http.ErrBodyReadAfterClose} {
		body := &closing{Reader: strings.NewReader("four")}
		r := HTTPRequest{Request: &http.Request{Body: body}}
		r.Body(limit)
		body.closed = true
		if got, err := io.ReadAll(r.Request.Body); string(got) != "four" || err != want {
			t.Errorf("of at most %d bytes: %q, %v, want %v", limit, got, err, want)
		}
	}
}
