// Command release makes everything that a release of Weir has: archives, packages for Debian, RPM
// and Alpine, an image, an SBOM and the sums of them all.
//
// It builds from clones of the commit that is checked out, so that no file of the working tree gets
// in, and reads version, commit and date back from the programs that it built. With -twice it does
// all of it in two directories and compares every file. It is a module of its own, so that the
// packagers are not in the go.mod of a service that embeds Weir.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

func main() {
	var o options
	flag.StringVar(&o.repository, "repository", "..", "the repository whose checked-out commit is released")
	flag.StringVar(&o.out, "out", "../dist", "where the files are written; what it has is replaced")
	flag.StringVar(&o.only, "only", "", "one platform, such as linux/amd64, instead of all")
	flag.StringVar(&o.program, "program", "", "make packages of this weir alone, which runs here, instead of building one; with -as")
	flag.StringVar(&o.as, "as", "", "the version that packages of -program have, such as 99.0.0, for tests of upgrades")
	flag.BoolVar(&o.twice, "twice", false, "build and pack a second time elsewhere, and compare every byte")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

type options struct {
	repository, out, only string
	program, as           string
	twice                 bool
}

func (o options) run(ctx context.Context, log io.Writer) error {
	platforms := everyPlatform
	if o.only != "" {
		i := slices.IndexFunc(platforms, func(p platform) bool { return p.String() == o.only })
		if i < 0 {
			return fmt.Errorf("-only %q: expected one of %v", o.only, everyPlatform)
		}
		platforms = platforms[i : i+1]
	}
	work, err := os.MkdirTemp("", "weir-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	out, err := filepath.Abs(o.out)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if o.program != "" {
		return o.packageProgram(ctx, out)
	}
	commit, err := head(ctx, o.repository) // once: the second time it may have moved on
	if err != nil {
		return err
	}
	if err := release(ctx, o.repository, commit, filepath.Join(work, "first"), out, platforms); err != nil {
		return err
	}
	if o.twice {
		again := filepath.Join(work, "second", "out")
		if err := release(ctx, o.repository, commit, filepath.Join(work, "second", "deeper"), again, platforms); err != nil {
			return fmt.Errorf("the second time: %w", err)
		}
		if err := sameFiles(out, again); err != nil {
			return err
		}
		fmt.Fprintln(log, "built twice, in two directories: every byte is the same")
	}
	return list(log, out)
}

// packageProgram writes the packages of a built program into out, as those of another version.
func (o options) packageProgram(ctx context.Context, out string) error {
	p, err := readProgram(o.program, platform{runtime.GOOS, runtime.GOARCH})
	if err != nil {
		return err
	}
	v, err := parseVersion("v" + o.as)
	if err != nil {
		return fmt.Errorf("-as: %w", err)
	}
	p.Version = v
	texts, err := readTexts(ctx, o.program, o.repository, p.Date)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	return writePackages(p, texts, out)
}

// release builds the programs for the platforms in work and packs them into out.
func release(ctx context.Context, repository, commit, work, out string, platforms []platform) error {
	source := filepath.Join(work, "source")
	if err := clone(ctx, repository, commit, source); err != nil {
		return err
	}
	var programs []program
	for _, p := range platforms {
		built, err := build(ctx, source, filepath.Join(work, "programs"), p)
		if err != nil {
			return err
		}
		if err := checkTag(source, built.Version); err != nil {
			return err
		}
		programs = append(programs, built)
	}
	host := filepath.Join(work, "weir")
	if err := buildHost(ctx, source, host); err != nil {
		return err
	}
	texts, err := readTexts(ctx, host, source, programs[0].Date)
	if err != nil {
		return err
	}
	return pack(programs, texts, out)
}

// pack writes every file of a release of the programs into out, which it creates.
func pack(programs []program, texts *texts, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var linux []program
	for _, p := range programs {
		if err := writeArchive(p, texts, out); err != nil {
			return err
		}
		if err := writeSBOM(p, out); err != nil {
			return err
		}
		if p.OS == "linux" {
			linux = append(linux, p)
			if err := writePackages(p, texts, out); err != nil {
				return err
			}
		}
	}
	if len(linux) > 0 {
		if err := writeImages(linux, out); err != nil {
			return err
		}
	}
	return writeSums(out)
}

// sameFiles reports the files that two directories do not have alike.
func sameFiles(a, b string) error {
	first, err := os.ReadDir(a)
	if err != nil {
		return err
	}
	second, err := os.ReadDir(b)
	if err != nil {
		return err
	}
	if len(first) == 0 || len(first) != len(second) {
		return fmt.Errorf("%d files the first time and %d the second", len(first), len(second))
	}
	var other []string
	for _, f := range first {
		x, err := os.ReadFile(filepath.Join(a, f.Name()))
		if err != nil {
			return err
		}
		y, err := os.ReadFile(filepath.Join(b, f.Name()))
		if err != nil {
			return err
		}
		if !bytes.Equal(x, y) {
			other = append(other, f.Name())
		}
	}
	if len(other) > 0 {
		return fmt.Errorf("not the same when built twice: %s", strings.Join(other, ", "))
	}
	return nil
}

func list(log io.Writer, out string) error {
	files, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	for _, f := range files {
		i, err := f.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(log, "%10d  %s\n", i.Size(), f.Name())
	}
	return nil
}

// output runs a command and returns what it printed.
func output(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}
