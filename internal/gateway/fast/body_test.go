package fast

import (
	"errors"
	"io"
	"testing"
)

// What is looked at of a body can be 256 KiB, of each of many callers at a time.
func TestABodyThatIsLookedAtIsNotCopied(t *testing.T) {
	var x exchange
	x.head.Length = 4
	x.body = requestBody{seen: []byte("body"), err: io.EOF}
	if got := x.Body(3); string(got) != "bod" || cap(got) != 3 || &got[0] != &x.body.seen[0] {
		t.Errorf("%q, with room for %d bytes, in other memory: %v", got, cap(got), &got[0] != &x.body.seen[0])
	}
}

// The end of a body that was looked at comes with its last bytes, as that of any body. If it came
// with the next read, an answer could come before that, and its connection would be closed for it.
func TestTheEndOfABodyThatWasSeenComesWithItsLastBytes(t *testing.T) {
	b := requestBody{seen: []byte("body"), err: io.EOF}
	p := make([]byte, 3)
	if n, err := b.Read(p); n != 3 || err != nil {
		t.Errorf("the first bytes: %d, %v", n, err)
	}
	if n, err := b.Read(p); n != 1 || !errors.Is(err, io.EOF) {
		t.Errorf("the last byte: %d, %v; want the end with it", n, err)
	}
}
