package report

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirlimit/weir/internal/cli"
)

// A PageFile is a file for a page, which is written whole or not at all.
type PageFile struct {
	path string
	file *os.File    // nil: written or discarded
	mode fs.FileMode // of the existing page; 0: there is none
}

// pageBegins is how every page of HTML begins.
const pageBegins = "<!doctype html>"

// CreatePage makes sure that a page can be written to path, and changes nothing there yet. Write
// replaces an existing file, which must be a page: 'weir simulate --html *.log' must not cost a
// log. The error has a hint (cli.Failure).
func CreatePage(path string) (*PageFile, error) {
	hint := "name a file of its own, in a directory that you may write to"
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	} else if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return nil, cli.Fail(fmt.Errorf("%s is a dangling link: it would be replaced", path), hint)
	}
	mode := fs.FileMode(0)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
		if !info.Mode().IsRegular() || info.Size() > 0 && !beginsAsPage(path) {
			return nil, cli.Fail(fmt.Errorf("%s exists and is not a page: it would be replaced", path), hint)
		}
	}
	// The umask decides who can read the file. os.CreateTemp would make it readable for its owner
	// alone.
	file, err := os.OpenFile(filepath.Join(filepath.Dir(path), ".weir-simulate-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, cli.Fail(fmt.Errorf("write the page %q: %w", path, err), hint)
	}
	return &PageFile{path: path, file: file, mode: mode}, nil
}

func beginsAsPage(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	begin := make([]byte, len(pageBegins))
	_, err = io.ReadFull(file, begin)
	return err == nil && bytes.EqualFold(begin, []byte(pageBegins))
}

// Write writes the page and moves it to its path.
func (p *PageFile) Write(content func(io.Writer) error) error {
	b := bufio.NewWriter(p.file)
	err := content(b)
	if err == nil {
		err = b.Flush()
	}
	if err == nil && p.mode != 0 {
		err = p.file.Chmod(p.mode) // keep what the owner of the existing page has decided
	}
	if err == nil {
		err = p.file.Sync()
	}
	err = errors.Join(err, p.file.Close())
	if err == nil {
		err = os.Rename(p.file.Name(), p.path)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("write the page %q: %w", p.path, err), os.Remove(p.file.Name()))
	}
	p.file = nil
	return err
}

// Discard removes what was not written. It does nothing after Write.
func (p *PageFile) Discard() {
	if p.file != nil {
		_ = p.file.Close() // its content is not needed
		_ = os.Remove(p.file.Name())
		p.file = nil
	}
}
