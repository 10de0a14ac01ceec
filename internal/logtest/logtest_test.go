package logtest_test

import (
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/internal/logtest"
)

func TestABufferHasEachLineOnce(t *testing.T) {
	var b logtest.Buffer
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range 10 {
				_, _ = io.WriteString(&b, "a line\n")
				_ = b.String()
			}
		})
	}
	all.Wait()
	want := strings.Repeat("a line\n", 100)
	if kept, taken := b.String(), b.Take(); kept != want || taken != want {
		t.Errorf("kept %q, and taken %q", kept, taken)
	}
	if b.String() != "" || b.Take() != "" {
		t.Error("what was taken is still there")
	}
}
