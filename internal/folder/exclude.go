package folder

import (
	"fmt"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// An exclusion is a pattern of files and folders to leave out.
type exclusion struct {
	pattern string
	any     bool // compare with the name alone, at any depth
	folders bool // only folders match
}

// exclusions compiles patterns (Options.Exclude), which are a subset of gitignore's: * matches any
// characters except a slash, ? one character, [a-z] one of a range, {a,b} either alternative, and
// ** any folders. A pattern with a slash before its end is compared with the path from the folder,
// with or without a leading slash; any other with the name, at any depth. A pattern that ends in a
// slash matches only folders. Everything in a folder that matches is excluded. Case matters. There
// is no negation (!).
func exclusions(patterns []string) (all []exclusion, err error) {
	for _, text := range patterns {
		p := text
		folders := strings.HasSuffix(p, "/")
		p = strings.TrimRight(p, "/")
		anchored := strings.Contains(p, "/")
		p = strings.TrimPrefix(p, "/")
		switch {
		case p == "" || path.Clean(p) != p || strings.HasPrefix(p, "../") || p == "." || p == "..":
			return nil, fmt.Errorf("%q: expected a name, such as drafts or *.tmp, or a path from the folder, such as old/**/draft-*.md", text)
		case strings.HasPrefix(p, "!"):
			return nil, fmt.Errorf("%q: a pattern cannot include again what another excludes; write a name that begins with ! as [!]", text)
		case !doublestar.ValidatePattern(p):
			return nil, fmt.Errorf("%q: it is not a valid pattern: a bracket or a brace is not closed, or it ends in a backslash", text)
		}
		all = append(all, exclusion{p, !anchored, folders})
	}
	return all, nil
}

// CheckPattern returns an error if a pattern of Options.Exclude is invalid.
func CheckPattern(pattern string) error {
	_, err := exclusions([]string{pattern})
	return err
}

// matches reports whether a file or folder is excluded, by its path from the folder.
func (x *exclusion) matches(name string, isFolder bool) bool {
	if x.folders && !isFolder {
		return false
	}
	if x.any {
		name = path.Base(name)
	}
	ok, _ := doublestar.Match(x.pattern, name) // exclusions has validated it
	return ok
}

func (f *Folder) excludes(name string, isFolder bool) bool {
	for i := range f.exclude {
		if f.exclude[i].matches(name, isFolder) {
			return true
		}
	}
	return false
}
