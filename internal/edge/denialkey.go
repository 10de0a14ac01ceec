package edge

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirlimit/weir/internal/owned"
)

// denialKeyFile is the name of the file in the data directory with the key of denial ids.
const denialKeyFile = "denial.key"

// denialKeySize is the length of the key in bytes.
const denialKeySize = 32

// A wrongKeyError reports a file that cannot be a key made here. It is never replaced, because ids
// depend on what it should be.
type wrongKeyError struct{ path, is string }

func (e *wrongKeyError) Error() string {
	return fmt.Sprintf("read the key of denial ids: %s is %s, and a key is a file of %d bytes", e.path, e.is, denialKeySize)
}

// keptKey returns the key in a file. If there is no file it makes one; processes that start at once
// all get the same key.
func keptKey(path string, random io.Reader) ([]byte, error) {
	key, err := readKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := makeKey(path, random); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return readKey(path)
}

func readKey(path string) ([]byte, error) {
	info, err := os.Stat(path) // first, because opening a pipe may block for ever
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &wrongKeyError{path, "not a regular file"}
	}
	if info.Size() != denialKeySize {
		return nil, &wrongKeyError{path, fmt.Sprintf("%d bytes long", info.Size())}
	}
	key, err := os.ReadFile(path)
	if err == nil && len(key) != denialKeySize {
		return nil, &wrongKeyError{path, fmt.Sprintf("%d bytes long", len(key))}
	}
	return key, owned.Explain(err)
}

// makeKey makes the file, complete or not at all. It returns fs.ErrExist if another process was
// first.
func makeKey(path string, random io.Reader) error {
	temp, err := owned.Create(filepath.Join(filepath.Dir(path), "."+denialKeyFile+"-"+rand.Text()))
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = io.CopyN(temp, random, denialKeySize)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}
	if err = os.Link(temp.Name(), path); err == nil || errors.Is(err, fs.ErrExist) {
		// Sync the name too, if the system can.
		if dir, err := os.Open(filepath.Dir(path)); err == nil {
			_, _ = dir.Sync(), dir.Close()
		}
		return err
	}
	// The file system has no hard links. A process that reads the file before it is complete finds
	// it too short, and reports that.
	file, err := owned.Create(path)
	if err != nil {
		return err
	}
	_, err = io.CopyN(file, random, denialKeySize)
	return errors.Join(err, file.Sync(), file.Close())
}
