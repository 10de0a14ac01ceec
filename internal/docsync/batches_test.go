//go:build !race

// Megabytes are written as JSON, which the race detector would only slow down.

package docsync

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/folder"
)

func TestBatchesAreAsLargeAsAllowed(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	escaped := strings.Repeat(`"`, folder.MaxText/2) // doubles in size as JSON
	for _, c := range []struct {
		files map[string]string
		want  int
	}{
		{many(500, "x"), 1}, {many(501, "x"), 2}, {many(1500, "x"), 3},
		{many(31, escaped), 1}, {many(32, escaped), 2},
		// same size as JSON: no escapes for HTML
		{many(33, strings.Repeat("<", folder.MaxText-1)), 2},
	} {
		w := newWorld(t, c.files)
		o := w.sync()
		w.done(o, len(c.files), 0)
		if w.sent() != c.want || o.plan.Requests != c.want {
			t.Errorf("%d documents: %d requests, %d planned, want %d", len(c.files), w.sent(), o.plan.Requests, c.want)
		}
		for _, r := range w.requests {
			if len(r.ids) > maxItems || r.size > maxPut || r.header.Get("Authorization") != "Bearer "+token {
				t.Errorf("a request of %d documents and %d bytes", len(r.ids), r.size)
			}
		}
	}
}
