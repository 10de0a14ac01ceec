package fast

import (
	"slices"
	"testing"
)

// Every refusal asks for Accept, and a limiter by a credential for that: reading a field allocates
// nothing once an exchange has served a request.
func TestFieldsAreReadWithoutAllocating(t *testing.T) {
	x := new(exchange)
	if err := x.head.Parse("GET / HTTP/1.1\r\nHost: h\r\naccept: a\r\nX-Api-Key: b\r\nAccept: c\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		x.values = x.values[:0] // as release does
		if got := x.Header("Accept"); !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("the values are %q", got)
		}
		if got := x.Header("X-Api-Key"); !slices.Equal(got, []string{"b"}) {
			t.Errorf("the values are %q", got)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if err := x.head.Parse("GET / HTTP/1.1\r\nHost: h\r\nAccept: a\r\nConnection: accept\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got := x.Header("Accept"); got != nil {
		t.Errorf("a field of this hop alone has the values %q", got)
	}
	if got := x.Header("X-Api-Key"); got != nil {
		t.Errorf("a field that the request does not have has the values %q", got)
	}
}

// The values of one field stay as they are while others are read, also if a caller appends to them.
func TestTheValuesOfAFieldOutliveTheNextOnes(t *testing.T) {
	x := new(exchange)
	if err := x.head.Parse("GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\nB: 2\r\nA: 3\r\nC: 4\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time in memory that is used again
		x.values = x.values[:0]
		a, b := x.Header("A"), x.Header("B")
		_ = append(a, "other")
		c := x.Header("C")
		for range 100 {
			x.Header("A")
		}
		if !slices.Equal(a, []string{"1", "3"}) || !slices.Equal(b, []string{"2"}) || !slices.Equal(c, []string{"4"}) {
			t.Errorf("the values are %q, %q, %q", a, b, c)
		}
	}
}
