package gateway

import (
	"io"
	"net/http"
	"testing"
)

// A body that was read to its end has ended, also after the answer has begun: net/http closes it
// then, while a transport may still look for what follows its last byte.
func TestABodyThatWasReadStaysAtItsEnd(t *testing.T) {
	e := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, err := io.ReadAll(r.Body); string(b) != "a body" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		w.(http.Flusher).Flush()
		if n, err := r.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("after the end: %d bytes, %v", n, err)
		}
	}), func(o *Options) { o.Limits.Body = -1 })
	c := e.caller()
	c.request("POST /v1/wp/x", "Content-Length: 6")
	c.write("a body")
	c.readAnswer("POST")
}
