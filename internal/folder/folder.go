// Package folder reads the Markdown, HTML and text files in a folder as documents of the bulk-sync
// API.
//
//	folder.go        walks a folder and selects its documents
//	exclude.go       patterns of files to exclude
//	file.go          reads one file, bounded, by its kind
//	frontmatter.go   title and url from front matter
//	markdown.go      Markdown as plain text
//	affordable.go    rejects Markdown that is too expensive to parse
//	page.go          HTML as plain text
//	lines.go         builds plain text
//	address.go       the URL of a document
//
// Files are untrusted input: a file may be huge, may not be text, or may not be a regular file. One
// that cannot be a document is reported as a Problem with a hint, and the others are still read.
package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of the bulk-sync API, in bytes of UTF-8.
const (
	MaxID    = 200
	MaxTitle = 500
	MaxURL   = 2048
	MaxText  = 256 << 10
)

// A Document is a file in the form that the bulk-sync API accepts.
type Document struct {
	ID    string // the file's path from the folder, with slashes
	Title string
	URL   string // absolute, http or https
	Text  string // plain text; lines end in \n, except that the last line may not
	// whether the URL comes from the file's front matter; else it was made from Options.Base
	Own bool
}

// A Problem is the reason why a file, or everything in a folder, cannot be a document.
type Problem struct {
	Path   string // from the folder, with slashes; it may hold any byte
	Folder bool   // whether Path is a folder that cannot be read, so that its contents are unknown
	Reason string
	Hint   string // how to resolve it
}

func (p *Problem) Error() string { return p.Path + ": " + p.Reason }

// Options configure Open. Base is required.
type Options struct {
	Base *url.URL // prefix of links made from paths: http or https, without query and fragment
	// files that are never documents: absolute paths, or relative to the folder; they need not
	// exist
	Skip []string

	// Exclude is a list of patterns of files and folders to leave out (see exclusions).
	Exclude []string
}

// A Folder is open for reading. It is safe for concurrent use.
type Folder struct {
	root *os.Root
	base *url.URL
	skip map[string]bool // paths from the folder, with slashes

	exclude []exclusion
}

// Open opens a folder. The error is that of the first bad pattern, or of opening dir.
func Open(dir string, o Options) (*Folder, error) {
	exclude, err := exclusions(o.Exclude)
	if err != nil {
		return nil, fmt.Errorf("open folder %q: exclude %w", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open folder %q: %w", dir, cause(err))
	}
	return &Folder{root: root, base: o.Base, skip: skipped(dir, o.Skip), exclude: exclude}, nil
}

// skipped returns the set of files as paths from dir, with slashes, under every name that leads to
// them. Files outside dir have no effect.
func skipped(dir string, files []string) map[string]bool {
	skip := map[string]bool{}
	note := func(base, file string) {
		if rel, err := filepath.Rel(base, file); err == nil {
			skip[filepath.ToSlash(rel)] = true
		}
	}
	// fails only if there is no working directory; then relative names stay relative
	dir, _ = filepath.Abs(dir)
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		real = dir
	}
	for _, file := range files {
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		note(dir, filepath.Clean(file))
		if to, err := filepath.EvalSymlinks(file); err == nil {
			note(real, to)
		}
		// the file itself may not exist yet
		if to, err := filepath.EvalSymlinks(filepath.Dir(file)); err == nil {
			note(real, filepath.Join(to, filepath.Base(file)))
		}
	}
	return skip
}

// Close closes the folder.
func (f *Folder) Close() error { return f.root.Close() }

// A Tally counts the files and folders that Walk left out.
type Tally struct {
	Ignored int // files with another extension
	Hidden  int // files and folders whose name begins with a dot
	Links   int // symbolic links, which are not followed

	// files and folders that match Options.Exclude; the contents of such a folder are not counted
	Excluded int

	Linked []string // the paths of these links; what is there or below is unknown
}

// Walk calls visit for each file that should be a document, in the order of paths within each
// folder, with a nil problem, or with the reason why the file or folder cannot be read as one. If
// ctx ends, Walk returns its error. Any other error means that the folder itself cannot be read.
func (f *Folder) Walk(ctx context.Context, visit func(path string, p *Problem)) (Tally, error) {
	var t Tally
	err := fs.WalkDir(f.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && name == ".":
			return fmt.Errorf("read folder %q: %w", f.root.Name(), cause(err))
		case name == ".":
			return nil
		case strings.HasPrefix(path.Base(name), "."):
			t.Hidden++
		case f.excludes(name, d.IsDir()):
			t.Excluded++
		case d.Type()&fs.ModeSymlink != 0:
			t.Links++
			t.Linked = append(t.Linked, name)
		case d.IsDir() && err != nil:
			visit(name, &Problem{name, true, fmt.Sprintf("this folder cannot be read: %v", cause(err)), "change its permissions so that you may read it, or move it away"})
		case d.IsDir() && !utf8.ValidString(name):
			visit(name, &Problem{name, true, "the name of this folder is not UTF-8", "rename it"})
		case d.IsDir():
			return nil
		case f.skip[name]:
			return nil
		case kindOf(name) == nil:
			t.Ignored++
			return nil
		default:
			visit(name, misnamed(name))
			return nil
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return t, err
}

// misnamed returns the problem that keeps a path from being an id, or nil.
func misnamed(name string) *Problem {
	strange := func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }
	switch {
	case !utf8.ValidString(name):
		return &Problem{Path: name, Reason: "its name is not UTF-8", Hint: "rename it"}
	case strings.ContainsFunc(name, strange):
		return &Problem{Path: name, Reason: "its name has a control character", Hint: "rename it"}
	case len(name) > MaxID:
		return &Problem{Path: name, Reason: fmt.Sprintf("its path has %d bytes: an id has at most %d", len(name), MaxID),
			Hint: "shorten the names, or sync a folder further down"}
	}
	return nil
}

// cause returns a file error without the path, which the message has already.
func cause(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
