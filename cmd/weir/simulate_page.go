package main

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

// A pageFile is a file that is there whole, or not at all.
type pageFile struct {
	path string
	file *os.File    // nil: it is done with
	mode fs.FileMode // of the page that is there; 0: none is
}

// pageBegins is how every page of ours begins.
const pageBegins = "<!doctype html>"

// createPage makes sure that a page can be written to path, and touches nothing that is there. What is there already is replaced
// later only if it is a page, too: 'weir simulate --html *.log' must not cost a log.
func createPage(path string) (*pageFile, error) {
	hint := "name a file of its own, in a directory that you may write to"
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	} else if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return nil, cli.Fail(fmt.Errorf("%s is a link to nothing that is there: it would be replaced", path), hint)
	}
	mode := fs.FileMode(0)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
		if !info.Mode().IsRegular() || info.Size() > 0 && !beginsAsPage(path) {
			return nil, cli.Fail(fmt.Errorf("%s is there, and no page: it would be replaced", path), hint)
		}
	}
	// Unlike os.CreateTemp, which makes files for oneself, this leaves it to the umask who may read it.
	file, err := os.OpenFile(filepath.Join(filepath.Dir(path), ".weir-simulate-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, cli.Fail(fmt.Errorf("write the page %q: %w", path, err), hint)
	}
	return &pageFile{path: path, file: file, mode: mode}, nil
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

// write writes the page and puts it in its place.
func (p *pageFile) write(content func(io.Writer) error) error {
	b := bufio.NewWriter(p.file)
	err := content(b)
	if err == nil {
		err = b.Flush()
	}
	if err == nil && p.mode != 0 {
		err = p.file.Chmod(p.mode) // who may read it was decided when it was first written, or since
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

// discard removes what was not written.
func (p *pageFile) discard() {
	if p.file != nil {
		_ = p.file.Close() // nothing in it matters
		_ = os.Remove(p.file.Name())
		p.file = nil
	}
}
