package fast

import (
	"slices"
	"testing"
)

// A refusal asks for the Accept field of its request, and allocates nothing for that.
func TestAcceptIsReadWithoutAllocating(t *testing.T) {
	x := new(exchange)
	if err := x.head.Parse("GET / HTTP/1.1\r\nHost: h\r\naccept: a\r\nX-A: b\r\nAccept: c\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got := x.Header("Accept"); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("the values are %q", got)
	}
	if n := testing.AllocsPerRun(100, func() { x.Header("Accept") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if err := x.head.Parse("GET / HTTP/1.1\r\nHost: h\r\nAccept: a\r\nConnection: accept\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got := x.Header("Accept"); got != nil {
		t.Errorf("a field of this hop alone has the values %q", got)
	}
}
