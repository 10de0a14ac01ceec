package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// A pageFile is a file that is there whole, or not at all.
type pageFile struct {
	path string
	file *os.File // nil: it is done with
}

// pageBegins is how every page of ours begins.
const pageBegins = "<!doctype html>"

// createPage makes sure that a page can be written to path, and touches nothing that is there. What is there already is replaced
// later only if it is a page, too: 'weir simulate --html *.log' must not cost a log.
func createPage(path string) (*pageFile, error) {
	hint := "name a file of its own, in a directory that you may write to"
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() || info.Size() > 0 && !beginsAsPage(path) {
			return nil, no(fmt.Errorf("%s is there, and no page: it would be replaced", path), hint)
		}
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".weir-simulate-*")
	if err != nil {
		return nil, no(fmt.Errorf("write the page %q: %w", path, err), hint)
	}
	return &pageFile{path: path, file: file}, nil
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
	if err == nil {
		err = p.file.Chmod(0o644) // it is for others, unlike a temporary file
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
