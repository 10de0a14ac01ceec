package folder

import (
	"fmt"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// An exclusion is a pattern of files and folders that are passed over.
type exclusion struct {
	pattern string
	any     bool // it is compared with the name alone, wherever that is
	folders bool // only folders match
}

// exclusions reads patterns (Options.Exclude). They are a part of gitignore's: * stands for any
// characters but a slash, ? for one, [a-z] for one of some, {a,b} for either, and ** for any
// folders. A pattern without a slash, but at its end, is compared with names at any depth; others
// with paths from the folder, with or without a slash at their beginning. One that ends in a slash
// matches folders alone. What is in a folder that matches is passed over too. Letters count as they
// stand; there is no pattern that takes something back.
func exclusions(patterns []string) (all []exclusion, err error) {
	for _, text := range patterns {
		p := text
		folders := strings.HasSuffix(p, "/")
		p = strings.TrimRight(p, "/")
		anchored := strings.Contains(p, "/")
		p = strings.TrimPrefix(p, "/")
		switch {
		case p == "" || path.Clean(p) != p || strings.HasPrefix(p, "../") || p == "." || p == "..":
			return nil, fmt.Errorf("%q: want a name, such as drafts or *.tmp, or a path from the folder, such as old/**/draft-*.md", text)
		case strings.HasPrefix(p, "!"):
			return nil, fmt.Errorf("%q: a pattern cannot take back what another excludes; write a name that begins with ! as [!]", text)
		case !doublestar.ValidatePattern(p):
			return nil, fmt.Errorf("%q: it is no pattern: a bracket or a brace is not closed, or it ends in a backslash", text)
		}
		all = append(all, exclusion{p, !anchored, folders})
	}
	return all, nil
}

// CheckPattern says what is wrong with a pattern of Options.Exclude; nil: nothing.
func CheckPattern(pattern string) error {
	_, err := exclusions([]string{pattern})
	return err
}

// matches reports whether a file or folder is passed over, by its path from the folder.
func (x *exclusion) matches(name string, isFolder bool) bool {
	if x.folders && !isFolder {
		return false
	}
	if x.any {
		name = path.Base(name)
	}
	ok, _ := doublestar.Match(x.pattern, name) // it was validated
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
