package edge

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestConcurrentStartsAgreeOnOneKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, denialKeyFile)
	keys := make([][]byte, 50)
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range keys {
		all.Go(func() {
			<-start
			var err error
			if keys[i], err = keptKey(path, rand.Reader); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	all.Wait()
	for _, key := range keys {
		if !bytes.Equal(key, keys[0]) || len(key) != denialKeySize {
			t.Fatalf("one has the key %x, another %x", keys[0], key)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v is left, %v", left, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
}

// If a file is not a valid key, it is not changed.
func TestAWrongKeyIsNeverReplaced(t *testing.T) {
	for what, content := range map[string]string{"an empty file": "", "a short one": strings.Repeat("k", 31), "a long one": strings.Repeat("k", 33)} {
		path := filepath.Join(t.TempDir(), denialKeyFile)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var wrong *wrongKeyError
		if _, err := keptKey(path, rand.Reader); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", what, err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != content {
			t.Errorf("%s is %q now, %v", what, b, err)
		}
	}
	dir := filepath.Join(t.TempDir(), denialKeyFile)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var wrong *wrongKeyError
	if _, err := keptKey(dir, rand.Reader); !errors.As(err, &wrong) {
		t.Errorf("a directory: %v", err)
	}
	if _, err := keptKey(filepath.Join(t.TempDir(), "gone", denialKeyFile), rand.Reader); err == nil {
		t.Error("there is a key in a directory that is not there")
	}
	if _, err := keptKey(filepath.Join(t.TempDir(), denialKeyFile), strings.NewReader("not random enough")); err == nil {
		t.Error("a truncated key is accepted")
	}
}
