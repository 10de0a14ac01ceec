package edge

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAStaleSocketIsReplacedAndALivingOneIsNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false) // as after kill -9
	dead.Close()
	l, err := listenSocket(path)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	if _, err := listenSocket(path); err == nil || !strings.Contains(err.Error(), "another process listens on it") {
		t.Errorf("a living socket: %v", err)
	}
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the living one is gone: %v", err)
	}
	defer client.Close()
	// the first connection is the look of the second server
	for range 2 {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.RemoteAddr().String(); got != "127.0.0.1:0" {
			t.Errorf("the peer is %s", got)
		}
		c.Close()
	}
	l.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is not removed: %v", err)
	}
}

func TestAFileThatIsNoSocketIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for at, why := range map[string]string{path: "not a socket", filepath.Join(filepath.Dir(path), "gone", "weir.sock"): "no such file"} {
		if _, err := listenSocket(at); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", at, err, why)
		}
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("%q, %v", b, err)
	}
}
