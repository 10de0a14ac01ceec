package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// A platform is what a program runs on, in Go's words.
type platform struct{ OS, Arch string }

func (p platform) String() string { return p.OS + "/" + p.Arch }

// everyPlatform is what a release is built for.
var everyPlatform = []platform{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

// A program is a built weir for one platform.
type program struct {
	platform
	Path    string
	Info    *debug.BuildInfo // what is in it
	Version version
	Date    time.Time // of the commit
}

// name is the beginning of the names of its files.
func (p program) name() string { return "weir_" + p.Version.String() + "_" + p.OS + "_" + p.Arch }

// executable is what the program is called on its platform.
func (p platform) executable() string {
	if p.OS == "windows" {
		return "weir.exe"
	}
	return "weir"
}

// head returns the commit that repository has checked out.
func head(ctx context.Context, repository string) (commit string, err error) {
	out, err := output(ctx, repository, nil, "git", "rev-parse", "HEAD")
	return strings.TrimSpace(string(out)), err
}

// clone copies a commit of repository, with the tags that name its version.
func clone(ctx context.Context, repository, commit, into string) error {
	if _, err := output(ctx, "", nil, "git", "clone", "--quiet", "--shared", "--no-checkout", repository, into); err != nil {
		return err
	}
	_, err := output(ctx, into, nil, "git", "checkout", "--quiet", "--detach", commit)
	return err
}

// buildFlags make a program that depends on its source and on the version of Go alone. The profile
// (`make profile`) tells the compiler what is called most; without it a request takes some 4 % more
// processor time. It is not cmd/weir/default.pgo, because all who build weir would have to wait
// while every package that it needs is compiled once more. Without
// grpcnotrace the program would contain gRPC's debug pages and, through their templates, every
// exported method of every type: 40 % more.
var buildFlags = []string{"-trimpath", "-pgo=release/weir.pgo", "-buildvcs=true", "-tags=grpcnotrace", "-ldflags=-s -w -buildid="}

// build builds weir for p below dir.
func build(ctx context.Context, source, dir string, p platform) (program, error) {
	path := filepath.Join(dir, p.OS+"-"+p.Arch, p.executable())
	env := []string{"CGO_ENABLED=0", "GOOS=" + p.OS, "GOARCH=" + p.Arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOWORK=off"}
	if _, err := output(ctx, source, env, "go", append(append([]string{"build"}, buildFlags...), "-o", path, "./cmd/weir")...); err != nil {
		return program{}, err
	}
	return readProgram(path, p)
}

// buildHost builds weir for this machine, to ask it for its help and completions.
func buildHost(ctx context.Context, source, path string) error {
	env := []string{"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off"}
	_, err := output(ctx, source, env, "go", append(append([]string{"build"}, buildFlags...), "-o", path, "./cmd/weir")...)
	return err
}

// readProgram reads from the program what it was built of.
func readProgram(path string, p platform) (program, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return program{}, err
	}
	b := program{platform: p, Path: path, Info: info}
	if b.Version, err = parseVersion(info.Main.Version); err != nil {
		return program{}, fmt.Errorf("%s: %w", path, err)
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.time":
			if b.Date, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return program{}, fmt.Errorf("%s: the date of its commit: %w", path, err)
			}
		case "vcs.modified":
			if s.Value != "false" {
				return program{}, fmt.Errorf("%s was built from files that are not committed", path)
			}
		}
	}
	if b.Date.IsZero() {
		return program{}, fmt.Errorf("%s has no date: it was built without -buildvcs=true, or outside a git repository", path)
	}
	return b, nil
}

// A version is that of a module, in the parts that packages order by.
type version struct {
	Number     string // 1.2.3
	Prerelease string // rc1; git and the commit's time if there is no tag; or empty
}

var (
	tagged   = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(?:-((?:alpha|beta|pre|rc)\d*))?$`)
	untagged = regexp.MustCompile(`^v(\d+\.\d+\.\d+)-(?:.*\.)?(\d{14})-[0-9a-f]{12}$`)
)

// parseVersion reads the version that Go wrote into a program: that of a tag, or of a commit.
func parseVersion(s string) (version, error) {
	if m := tagged.FindStringSubmatch(s); m != nil {
		return version{m[1], m[2]}, nil
	}
	if m := untagged.FindStringSubmatch(s); m != nil {
		return version{m[1], "git" + m[2]}, nil
	}
	return version{}, fmt.Errorf("version %q: expected a tag such as v1.2.3 or v1.2.3-rc1, or the version of a commit without one", s)
}

func (v version) String() string {
	if v.Prerelease == "" {
		return v.Number
	}
	return v.Number + "-" + v.Prerelease
}
