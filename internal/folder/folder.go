// Package folder reads a folder of Markdown, HTML and text files as documents of the bulk-sync surface.
//
//	folder.go        what is in a folder, and what is not a document of it
//	exclude.go       what somebody does not want to be one
//	file.go          one file: read bounded, then by its kind
//	frontmatter.go   title and url where the file gives them itself
//	markdown.go      Markdown as plain text
//	affordable.go    what Markdown costs to read, before it is read
//	page.go          HTML as plain text
//	lines.go         what plain text is made with
//	address.go       where a document's link leads
//
// Files are what strangers wrote. None of them is trusted to be small, to be text, or to be a file at all: what cannot be a
// document is a Problem, which says what to do about it, and the others go on.
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

// What the surface takes, in bytes of UTF-8.
const (
	MaxID    = 200
	MaxTitle = 500
	MaxURL   = 2048
	MaxText  = 256 << 10
)

// A Document is a file as the bulk-sync surface takes it.
type Document struct {
	ID    string // the file's path from the folder, with slashes
	Title string
	URL   string // absolute, http or https
	Text  string // plain, in lines that end in \n or not at all
	Own   bool   // whether the file gives its URL itself; else it was made from Options.Base
}

// A Problem says why a file, or what is below a folder, cannot be a document.
type Problem struct {
	Path   string // from the folder, with slashes; it may hold any byte
	Folder bool   // whether Path is a folder that cannot be read, so that nobody knows what is in it
	Reason string
	Hint   string // what to do about it
}

func (p *Problem) Error() string { return p.Path + ": " + p.Reason }

// Options say how documents are made. Base is required.
type Options struct {
	Base *url.URL // what links are made from, by path; http or https, without query and fragment
	Skip []string // files that are no documents, whatever they are called: absolute, or from the folder; they need not exist

	// Exclude are patterns of files and folders that are passed over, see exclusions.
	Exclude []string
}

// A Folder is open for reading. It is safe for concurrent use.
type Folder struct {
	root *os.Root
	base *url.URL
	skip map[string]bool // paths from the folder, with slashes

	exclude []exclusion
}

// Open opens a folder. The error says why it cannot be one.
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

// skipped returns files as paths from dir, with slashes, under all names that lead there. Those elsewhere do no harm.
func skipped(dir string, files []string) map[string]bool {
	skip := map[string]bool{}
	note := func(base, file string) {
		if rel, err := filepath.Rel(base, file); err == nil {
			skip[filepath.ToSlash(rel)] = true
		}
	}
	dir, _ = filepath.Abs(dir) // only fails where there is no working directory; then names are taken as they are
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
		if to, err := filepath.EvalSymlinks(filepath.Dir(file)); err == nil { // the file itself may not exist yet
			note(real, filepath.Join(to, filepath.Base(file)))
		}
	}
	return skip
}

// Close lets go of the folder.
func (f *Folder) Close() error { return f.root.Close() }

// A Tally counts what was passed over.
type Tally struct {
	Ignored int // files with another extension
	Hidden  int // files and folders whose name begins with a dot
	Links   int // symbolic links: they are not followed

	Excluded int // files and folders that Options.Exclude matches; what is in such a folder is not looked at

	Linked []string // the paths of these links: nobody knows what is there, or below
}

// Walk calls visit for each file that should be a document, in the order of the paths within each folder, or with the
// problem of what cannot be one. It ends early with ctx's error. Any other error means that the folder itself cannot be read.
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
			visit(name, &Problem{name, true, fmt.Sprintf("this folder cannot be read: %v", cause(err)), "allow yourself to read it, or move it away"})
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

// misnamed returns what keeps a path from being an id; nil where nothing does.
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

// cause is a file error without the path, which is told beside it.
func cause(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
