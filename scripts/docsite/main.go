// Command docsite writes the pages of docs as a static site: HTML, one style sheet, and a search
// that runs in the browser. The pages load nothing from other servers, and work from a directory.
//
// The navigation is docs/README.md: its sections, and the links of its lists.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	docs := flag.String("docs", "docs", "the directory with the pages, in Markdown")
	out := flag.String("out", "site", "the directory to write, which is replaced")
	at := flag.String("at", "/", "the path at which a server has the site; only its page 404.html needs it")
	flag.Parse()
	if err := run(*docs, *out, *at); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(docs, out, at string) error {
	files, err := build(os.DirFS(docs), at)
	if err != nil {
		return fmt.Errorf("make a site of %s: %w", docs, err)
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(out, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("%s: %d files\n", out, len(files))
	return nil
}
