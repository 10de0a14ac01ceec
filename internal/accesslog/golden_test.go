package accesslog_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/accesslog"
)

var update = flag.Bool("update", false, "write the golden files anew")

// told returns the lines of a log as text, one per line.
func told(t *testing.T, o accesslog.Options) string {
	t.Helper()
	var b strings.Builder
	o.Malformed = func(m accesslog.Malformed) { fmt.Fprintf(&b, "%d malformed %q: %s\n", m.Line, m.Text, m.Reason) }
	r, err := accesslog.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	var l accesslog.Line
	for {
		err := r.Next(&l)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%d %s peer=%q method=%q target=%q", l.Number,
			time.Unix(0, l.Time).UTC().Format(time.RFC3339Nano), l.Peer, l.Method, l.Target)
		if l.Host != nil {
			fmt.Fprintf(&b, " host=%q", l.Host)
		}
		fmt.Fprintf(&b, " agent=%q status=%d", l.UserAgent, l.Status)
		for i, name := range o.Fields {
			fmt.Fprintf(&b, " %s=%q", name, l.Field(i))
		}
		b.WriteByte('\n')
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	return b.String()
}

func TestEveryFormatIsToldByItsLines(t *testing.T) {
	for _, name := range accesslog.Formats()[1:] {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".log")
			r, err := accesslog.Open(accesslog.Options{Files: []string{file}})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Stats().Formats[0]; got != name {
				t.Errorf("taken for %s", got)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}

			got := told(t, accesslog.Options{Files: []string{file}})
			if named := told(t, accesslog.Options{Files: []string{file}, Format: name}); named != got {
				t.Errorf("with its format named, got\n%swithout\n%s", named, got)
			}
			golden := strings.TrimSuffix(file, ".log") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}
