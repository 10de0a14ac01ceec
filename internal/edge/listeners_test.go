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
		names string
		admin bool
		err   string // empty if accepted
	}{
		{"http", false, ""},
		{"weir.socket", false, ""},
		{"http admin", true, ""},
		{"admin http", true, ""},
		{"admin", false, `none is named "http"`},
		{"http http", false, `two sockets are named "http"`},
		{"http metrics", false, `of 2 sockets one is named "metrics": the names are http and admin`},
		{"unix:http", false, "expected TCP"},
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
		case test.err == "" && (err != nil || s.public == nil || (s.admin != nil) != test.admin || !s.held):
			t.Errorf("%s: %+v, %v", test.names, s, err)
		}
		if s != nil {
			s.close()
		}
	}
}
