package edge

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestASocketsNameDefinesItsUse(t *testing.T) {
	file := func(network string) *os.File {
		t.Helper()
		l, err := net.Listen(network, map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")}[network])
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f, err := l.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, test := range []struct {
		names          string
		admin, metrics bool
		err            string // empty if accepted
	}{
		{"http", false, false, ""},
		{"weir.socket", false, false, ""},
		{"http admin", true, false, ""},
		{"http metrics", false, true, ""},
		{"metrics admin http", true, true, ""},
		{"admin http", true, false, ""},
		{"redirect http", false, false, ""},
		{"redirect", false, false, `none is named "http"`},
		{"http redirect redirect", false, false, `two sockets are named "redirect"`},
		{"admin", false, false, `none is named "http"`},
		{"metrics", false, false, `none is named "http"`},
		{"http http", false, false, `two sockets are named "http"`},
		{"http metrics metrics", false, false, `two sockets are named "metrics"`},
		{"http scrape", false, false, `of 2 sockets one is named "scrape": the names are http, admin, metrics and redirect`},
		{"unix:http", false, false, "expected TCP"},
	} {
		names := strings.Fields(test.names)
		var files []*os.File
		for i, name := range names {
			network := "tcp"
			if unix, ok := strings.CutPrefix(name, "unix:"); ok {
				names[i], network = unix, "unix"
			}
			files = append(files, file(network))
		}
		s, err := heldListeners(names, files)
		switch {
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%s: %v, want %q", test.names, err, test.err)
		case test.err == "" && (err != nil || s.public == nil || (s.admin != nil) != test.admin || (s.metrics != nil) != test.metrics || (s.redirect != nil) != strings.Contains(test.names, "redirect") || !s.held):
			t.Errorf("%s: %+v, %v", test.names, s, err)
		}
		if s != nil {
			s.close()
		}
	}
}
