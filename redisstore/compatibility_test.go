package redisstore

import (
	"testing"

	"github.com/weirlimit/weir"
)

// The names on the server are promised (docs/compatibility.md): with others, nodes of two versions
// would count in windows of their own.
func TestTheNamesOnTheServerStayAsTheyAre(t *testing.T) {
	h := newHasher("weir", []byte("a secret of 32 bytes for a test."))
	c := &weir.Charge{Key: []byte("limiter and caller"), Scope: 8, Subject: 18}
	if got, want := h.name(c, h.hash(c)), "weir:{n6OQ}ByYQke-s9VvNvEWS"; got != want {
		t.Errorf("the name is %s, want %s", got, want)
	}
	if got, want := h.mark, "xhHn0SLDmvwNjTP9kQADWQ"; got != want {
		t.Errorf("the mark of the secret is %s, want %s", got, want)
	}
}
