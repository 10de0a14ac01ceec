package accesslog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/accesslog"
)

func TestAFileThatIsAnotherOneByNowIsNotRead(t *testing.T) {
	for name, change := range map[string]func(name string, text []byte) error{
		"the file was replaced": func(name string, text []byte) error {
			if err := os.Rename(name, name+".1"); err != nil {
				return err
			}
			return os.WriteFile(name, text, 0o600)
		},
		"it has shrunk": func(name string, text []byte) error { return os.Truncate(name, 10) },
		"no such file":  func(name string, text []byte) error { return os.Remove(name) },
	} {
		dir := t.TempDir()
		text := []byte(commonLine(noon.Add(time.Hour), "b"))
		early := write(t, filepath.Join(dir, "early.log"), []byte(commonLine(noon, "a")))
		late := write(t, filepath.Join(dir, "late.log"), text)
		r, err := accesslog.Open(accesslog.Options{Files: []string{late, early}})
		if err != nil {
			t.Fatal(err)
		}
		var l accesslog.Line
		if err := r.Next(&l); err != nil || string(l.Target) != "/a" {
			t.Fatal(err)
		}
		if err := change(late, text); err != nil {
			t.Fatal(err)
		}
		if err := r.Next(&l); err == nil || !strings.Contains(err.Error(), late) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if err := r.Next(&l); !errors.Is(err, io.EOF) {
			t.Errorf("then %v", err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A log may be truncated while it is read, and even be rewritten.
func TestAFileThatShrinksWhileItIsReadIsSaidTo(t *testing.T) {
	var text bytes.Buffer
	for i := range 50_000 {
		text.WriteString(commonLine(noon.Add(time.Duration(i/100)*time.Second), fmt.Sprintf("%d-%x", i, rand.Uint64())))
	}
	for how := range 4 { // plain, gzip, zstd, standard input
		dir := t.TempDir()
		name := write(t, filepath.Join(dir, "a.log"), packed(text.Bytes(), []int{0, 1, 3, 0}[how]))
		o := accesslog.Options{Files: []string{name}}
		if how == 3 {
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			o = accesslog.Options{Stdin: f}
		}
		r, err := accesslog.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		var l accesslog.Line
		if err := r.Next(&l); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, 0); err != nil {
			t.Fatal(err)
		}
		if how%2 == 0 { // a line of the rewritten log
			write(t, name, []byte(commonLine(noon.Add(time.Hour), "new")))
		}
		lines := 1
		for err = r.Next(&l); err == nil; err = r.Next(&l) {
			if lines++; string(l.Target) == "/new" {
				t.Errorf("%d: a line of the new log is read", how)
			}
		}
		if lines >= 50_000 || !strings.Contains(err.Error(), "it has shrunk from ") || !strings.Contains(err.Error(), "while it was read") {
			t.Errorf("%d: after %d lines: %v", how, lines, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAFileMayGrowWhileItIsRead(t *testing.T) {
	name := write(t, filepath.Join(t.TempDir(), "a.log"), []byte(commonLine(noon, "a")+`192.0.2.1 - - [01/Mar/20`))
	r, err := accesslog.Open(accesslog.Options{Files: []string{name}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("26:12:00:01 +0000] \"GET /b HTTP/1.1\" 200 1")
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	var l accesslog.Line
	for _, want := range []string{"/a", "/b"} {
		if err := r.Next(&l); err != nil || string(l.Target) != want {
			t.Fatalf("%q, %v; want %s", l.Target, err, want)
		}
	}
	if s := r.Stats(); s.Bytes != s.Total || s.Malformed != 0 {
		t.Errorf("%+v", s)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestAPipeIsReadToItsEndWhileOthersAskHowFar(t *testing.T) {
	from, to := io.Pipe()
	var both sync.WaitGroup
	both.Go(func() {
		for i := range 2000 {
			if _, err := io.WriteString(to, commonLine(noon.Add(time.Duration(i)*time.Second), "a")); err != nil {
				t.Error(err)
			}
		}
		_ = to.Close()
	})
	r, err := accesslog.Open(accesslog.Options{Stdin: from})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	both.Go(func() {
		for last := int64(0); ; {
			s := r.Stats()
			if s.Lines < last || s.Total != -1 || s.Formats[0] != "common" {
				t.Errorf("%+v after %d lines", s, last)
			}
			last = s.Lines
			select {
			case <-done:
				return
			default:
			}
		}
	})
	var l accesslog.Line
	lines := 0
	for err = r.Next(&l); err == nil; err = r.Next(&l) {
		lines++
	}
	close(done)
	both.Wait()
	if lines != 2000 || !errors.Is(err, io.EOF) {
		t.Errorf("%d lines, then %v", lines, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestStandardInputFromAFileTellsItsSize(t *testing.T) {
	text := []byte(commonLine(noon, "a"))
	f, err := os.Open(write(t, filepath.Join(t.TempDir(), "a.log"), text))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, s := targets(t, accesslog.Options{Stdin: f}); s.Total != int64(len(text)) || s.Bytes != s.Total {
		t.Errorf("%+v", s)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
