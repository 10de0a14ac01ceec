//go:build !race

// One goroutine reads, which the race detector would only slow down.

package accesslog_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/accesslog"
)

func TestAFolderOfRotatedLogsIsOpenedOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	const files = 1500
	dir := t.TempDir()
	var o accesslog.Options
	for i := range files {
		at := noon.Add(time.Duration(i) * time.Minute)
		text := []byte(commonLine(at, fmt.Sprint(2*i)) + commonLine(at.Add(50*time.Second), fmt.Sprint(2*i+1)))
		o.Files = append(o.Files, write(t, filepath.Join(dir, fmt.Sprint(i)), packed(text, i%4)))
	}
	rand.Shuffle(files, func(i, j int) { o.Files[i], o.Files[j] = o.Files[j], o.Files[i] })
	r, err := accesslog.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	var l accesslog.Line
	open := 0
	for i := range 2 * files {
		if err := r.Next(&l); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("/%d", i); string(l.Target) != want {
			t.Fatalf("line %d has target %s", i, l.Target)
		}
		open = max(open, r.OpenFiles())
	}
	if open > 2 {
		t.Errorf("%d of %d files were open at once", open, files)
	}
	if err := r.Next(&l); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestManyLogsOfOneDayAreMerged(t *testing.T) {
	const files, lines = 400, 60
	dir := t.TempDir()
	var o accesslog.Options
	for f := range files {
		var text strings.Builder
		for i := range lines {
			text.WriteString(commonLine(noon.Add(time.Duration(i*files+f)*time.Second), fmt.Sprint(i*files+f)+strings.Repeat("x", 2000)))
		}
		o.Files = append(o.Files, write(t, filepath.Join(dir, fmt.Sprint(f)), []byte(text.String())))
	}
	bytes := allocated(func() {
		found, _, stats := targets(t, o)
		for i, target := range found {
			if want := fmt.Sprintf("/%dx", i); !strings.HasPrefix(target, want) {
				t.Fatalf("line %d has target %.20s", i, target)
			}
		}
		if len(found) != files*lines || stats.OutOfOrder != 0 {
			t.Errorf("%d lines, %+v", len(found), stats)
		}
	})
	if bytes -= files * lines * 2000; bytes > 112<<20 { // without the collected targets
		t.Errorf("%d bytes of memory are taken", bytes)
	}
}
