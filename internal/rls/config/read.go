package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	limits "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
)

// Options are the settings of reading. The zero value reads as envoyproxy/ratelimit does without
// settings.
type Options struct {
	// Merge allows several files with one domain, whose descriptors are joined.
	Merge bool
}

// A File is the name and the text of one file, or what OfResource returns.
type File struct {
	Name string
	Text []byte

	resource *limits.RateLimitConfig // in place of Text; nil: there is none
}

const (
	// MaxSize is the max size of all files together, in bytes.
	MaxSize = 64 << 20
	// MaxFiles is the max number of files.
	MaxFiles = 10_000
	// MaxDepth is the max depth of nested descriptors.
	MaxDepth = 64
)

// Read reads the configuration in a file, or in all files of a directory and of those in it. Names
// that begin with a dot are left out, as are those of a Kubernetes volume's own directories. The
// error has all problems, one a line, each with its file and line.
func Read(path string, o Options) (*Config, error) {
	files, err := Files(path)
	if err != nil {
		return nil, err
	}
	return Parse(files, o)
}

// Files returns the files of a configuration in the order of their names.
func Files(path string) ([]File, error) {
	names, err := namesIn(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration %q: %w", path, err)
	}
	files, size := make([]File, 0, len(names)), int64(0)
	for _, name := range names {
		text, err := readBounded(name, MaxSize-size)
		if err != nil {
			return nil, fmt.Errorf("read the configuration %q: %w", path, err)
		}
		size += int64(len(text))
		files = append(files, File{Name: name, Text: text})
	}
	return files, nil
}

var errTooLarge = fmt.Errorf("its files are larger than %d MiB together, which is the max", MaxSize>>20)

func readBounded(name string, left int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, left+1))
	if err == nil && int64(len(text)) > left {
		err = errTooLarge
	}
	return text, err
}

// namesIn returns the regular files at path. It follows links, because a Kubernetes volume is made
// of them, but no link more than once, so that it ends.
func namesIn(path string) (names []string, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.Mode().IsRegular():
		return []string{path}, nil
	case !info.IsDir():
		return nil, errors.New("it is neither a file nor a directory")
	}
	w := walk{above: map[string]bool{}}
	if err := w.directory(path); err != nil {
		return nil, err
	}
	return w.names, nil
}

// A walk visits a directory and those in it.
type walk struct {
	names []string
	above map[string]bool // the directories that are being visited, without links
}

func (w *walk) directory(path string) error {
	own, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if w.above[own] {
		return fmt.Errorf("%s leads back to a directory that it is in", path)
	}
	w.above[own] = true
	defer delete(w.above, own)
	all, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return err
	}
	for _, e := range all {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if err := w.entry(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entry(name string) error {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// otherwise it has gone since the directory was read
		if _, err := os.Lstat(name); err == nil {
			return fmt.Errorf("%s is a link to a file that does not exist", name)
		}
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return w.directory(name)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file nor a directory", name)
	}
	if w.names = append(w.names, name); len(w.names) > MaxFiles {
		return fmt.Errorf("it has more than %d files, which is the max", MaxFiles)
	}
	return nil
}
