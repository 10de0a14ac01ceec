package nginx

import (
	"fmt"
	"path/filepath"
	"slices"

	crossplane "github.com/nginxinc/nginx-go-crossplane"
)

// cycle returns an error about an include by which a file includes itself; nil: no include of path
// and of what it includes does. Parse reports that there is one, and not where.
func cycle(path string) error {
	return cycleIn(path, filepath.Dir(path), nil, map[string]bool{})
}

// cycleIn looks into a file, and reads each only once. above are the files that lead to it.
func cycleIn(path, dir string, above []string, seen map[string]bool) error {
	if seen[path] {
		return nil
	}
	seen[path] = true
	parsed, err := crossplane.Parse(path, &crossplane.ParseOptions{SingleFile: true, SkipDirectiveContextCheck: true, SkipDirectiveArgsCheck: true, Open: open})
	if err != nil {
		return nil
	}
	above = append(above[:len(above):len(above)], path)
	for _, include := range find(parsed.Config[0].Parsed, "include") {
		if len(include.Args) == 0 {
			continue
		}
		pattern := include.Args[0]
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(dir, pattern)
		}
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			if slices.Contains(above, file) {
				return fmt.Errorf("%s:%d: this include leads to %s, which includes this file", path, include.Line, file)
			}
			if err := cycleIn(file, dir, above, seen); err != nil {
				return err
			}
		}
	}
	return nil
}
