// Command corpora fills the corpora of the fuzz targets, the folders testdata/fuzz, from the fuzz
// cache. For each target it adds inputs that execute code which the seeds do not, the one that adds
// most first, until there are eight. `go test` runs them. Inputs that are already in a corpus stay.
//
// scripts/fuzz fills the cache; `make corpora` runs both.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	maxInputs  = 8    // of a target
	maxSize    = 2048 // bytes of an input
	maxMeasure = 150  // inputs of the cache whose coverage is measured
)

func main() {
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: corpora [PACKAGE...]\n\nWithout packages: all of the module.")
	}
	flag.Parse()
	packages := flag.Args()
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	if err := run(packages); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(patterns []string) error {
	cache, err := output("", "go", "env", "GOCACHE")
	if err != nil {
		return err
	}
	list, err := output("", "go", append([]string{"list", "-f", "{{.ImportPath}}\t{{.Dir}}"}, patterns...)...)
	if err != nil {
		return err
	}
	for _, line := range strings.Split(strings.TrimSpace(list), "\n") {
		path, dir, _ := strings.Cut(line, "\t")
		targets, err := targetsOf(dir)
		if err != nil {
			return err
		}
		if len(targets) == 0 {
			continue
		}
		p := tested{path: path, dir: dir, cache: filepath.Join(strings.TrimSpace(cache), "fuzz", path)}
		if err := p.fill(targets); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

var target = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(`)

// targetsOf returns the names of the fuzz targets in a directory.
func targetsOf(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		source, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		for _, m := range target.FindAllSubmatch(source, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names, nil
}

// A tested package has fuzz targets.
type tested struct {
	path, dir string
	cache     string // the directory of its inputs in the fuzz cache
	binary    string // its tests, which count what they execute
	profile   string // where the binary writes the counts
}

// fill fills the corpora of the targets.
func (p tested) fill(targets []string) error {
	work, err := os.MkdirTemp("", "weir-corpora-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	p.binary, p.profile = filepath.Join(work, "cover.test"), filepath.Join(work, "profile")
	own, err := p.imported()
	if err != nil {
		return err
	}
	if _, err := output("", "go", "test", "-c", "-vet=off", "-covermode=count", "-coverpkg="+strings.Join(own, ","), "-o", p.binary, p.path); err != nil {
		return err
	}
	for _, t := range targets {
		if err := p.fillTarget(t); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	return nil
}

// imported returns the packages of this module that the tests of p import, and p itself.
func (p tested) imported() ([]string, error) {
	module, err := output("", "go", "list", "-m")
	if err != nil {
		return nil, err
	}
	list, err := output("", "go", "list", "-deps", "-test", "-f", "{{if not .ForTest}}{{.ImportPath}}{{end}}", p.path)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strings.Fields(list), func(path string) bool {
		return path != strings.TrimSpace(module) && !strings.HasPrefix(path, strings.TrimSpace(module)+"/") || strings.HasSuffix(path, ".test")
	}), nil
}

// fillTarget fills the corpus of one target.
func (p tested) fillTarget(name string) error {
	corpus := filepath.Join(p.dir, "testdata", "fuzz", name)
	kept, err := inputs(corpus)
	if err != nil {
		return err
	}
	if len(kept) >= maxInputs {
		return nil
	}
	found, err := inputs(filepath.Join(p.cache, name))
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(i input) bool {
		return len(i.content) > maxSize || slices.ContainsFunc(kept, func(k input) bool { return bytes.Equal(k.content, i.content) })
	})
	covered, err := p.execute(name, "")
	if err != nil {
		return err
	}
	found = found[:min(len(found), maxMeasure)]
	if err := os.MkdirAll(corpus, 0o755); err != nil {
		return err
	}
	executed := make(map[string]features, len(found))
	for _, i := range found {
		path := filepath.Join(corpus, i.name)
		if err := os.WriteFile(path, i.content, 0o644); err != nil {
			return err
		}
		executed[i.name], err = p.execute(name, i.name)
		if err := os.Remove(path); err != nil {
			return err
		}
		if err != nil {
			return err
		}
	}
	chosen := choose(found, executed, covered, maxInputs-len(kept))
	for _, i := range chosen {
		if err := os.WriteFile(filepath.Join(corpus, i.name), i.content, 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("%s %s: %d inputs and %d of the fuzz cache's %d\n", p.path, name, len(kept), len(chosen), len(found))
	_ = os.Remove(corpus) // if it is empty
	return nil
}

// choose returns at most n inputs: each time the one that adds most to what is covered.
func choose(found []input, executed map[string]features, covered features, n int) (chosen []input) {
	for len(chosen) < n {
		best, most := input{}, 0
		for _, i := range found {
			if adds := executed[i.name].without(covered); adds > most {
				best, most = i, adds
			}
		}
		if most == 0 {
			break
		}
		chosen = append(chosen, best)
		for f := range executed[best.name] {
			covered[f] = true
		}
	}
	return chosen
}

// An input is a file of a corpus.
type input struct {
	name    string
	content []byte
}

// inputs returns the inputs in a directory, the smallest first. There may be no such directory.
func inputs(dir string) ([]input, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var list []input
	for _, e := range entries {
		if e.Type() != fs.FileMode(0) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		list = append(list, input{e.Name(), b})
	}
	slices.SortFunc(list, func(a, b input) int {
		return cmp.Or(cmp.Compare(len(a.content), len(b.content)), cmp.Compare(a.name, b.name))
	})
	return list, nil
}

// features are the blocks of code that a run executed, with how often, in powers of two. That is
// what the fuzzer goes by, too.
type features map[string]bool

// without counts the features that other does not have.
func (f features) without(other features) (n int) {
	for name := range f {
		if !other[name] {
			n++
		}
	}
	return n
}

// execute runs one input of the corpus, or all seeds if it has no name.
func (p tested) execute(target, name string) (features, error) {
	run := "^" + target + "$"
	if name != "" {
		run += "/^" + name + "$"
	}
	if _, err := output(p.dir, p.binary, "-test.run", run, "-test.coverprofile", p.profile, "-test.paniconexit0"); err != nil {
		return nil, err
	}
	profile, err := os.Open(p.profile)
	if err != nil {
		return nil, err
	}
	defer profile.Close()
	f := features{}
	lines := bufio.NewScanner(profile)
	for lines.Scan() { // file:line.column,line.column statements count
		field := strings.Fields(lines.Text())
		if len(field) != 3 {
			continue // mode: count
		}
		count, err := strconv.ParseUint(field[2], 10, 64)
		if err != nil {
			return nil, err
		}
		if count > 0 {
			f[field[0]+" "+strconv.Itoa(bits.Len64(count))] = true
		}
	}
	return f, lines.Err()
}

// output runs a command and returns what it printed.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out), nil
}
