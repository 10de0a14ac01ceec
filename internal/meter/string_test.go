package meter

import (
	"bytes"
	"testing"
)

// Words of eight bytes are judged at once, so each byte is tried in each place of a word.
func TestTextEndsAtAQuoteAControlCharacterAndALongEscape(t *testing.T) {
	for at := range 20 {
		for _, after := range []int{0, 3, 17} {
			for c := range 256 {
				isEnd := c == '"' || c == '\\' || c < ' '
				for _, around := range []byte{'!', ' ', 0x7f, 0x80} {
					p := bytes.Repeat([]byte{around}, at+1+after)
					p[at] = byte(c)
					want := len(p)
					if isEnd {
						want = at
					}
					if got := plain(p); got != want {
						t.Fatalf("plain(%q) = %d, want %d", p, got, want)
					}
					if got := text(p); got != want {
						t.Fatalf("text(%q) = %d, want %d", p, got, want)
					}
				}
			}
		}
	}
}

func TestTextGoesOnAfterAShortEscape(t *testing.T) {
	for at := range 20 {
		for c := range 256 {
			p := append(bytes.Repeat([]byte("x"), at), '\\', byte(c))
			p = append(append(p, bytes.Repeat([]byte("y"), 20)...), '"')
			want := at
			if bytes.IndexByte([]byte(`"\/bfnrt`), byte(c)) >= 0 {
				want = len(p) - 1
			}
			if got := text(p); got != want {
				t.Fatalf("text(%q) = %d, want %d", p, got, want)
			}
			if got := text(p[:at+1]); got != at { // the backslash comes last
				t.Fatalf("text(%q) = %d, want %d", p[:at+1], got, at)
			}
		}
	}
}
