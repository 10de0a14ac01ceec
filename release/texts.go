package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// own are the files that only packages have: units, maintainer scripts, settings to begin with.
//
//go:embed files
var own embed.FS

// units are those of systemd.
var units = []string{"weir.service", "weir.socket"}

// texts is what a release has besides the program, the same for every platform.
type texts struct {
	documents       []file // README, changelog, license, and the licenses of linked modules
	bash, zsh, fish []byte // completions
	powershell      []byte
	manuals         []file
	policy          []byte // to begin with
}

// own returns one of the package's own files.
func (t *texts) own(name string) []byte {
	b, err := own.ReadFile("files/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return b
}

func (t *texts) document(name string) []byte {
	i := slices.IndexFunc(t.documents, func(f file) bool { return f.Name == name })
	return t.documents[i].Content
}

// completions are the completions as they lie in an archive.
func (t *texts) completions() []file {
	return []file{
		{Name: "completions/weir.bash", Content: t.bash, Mode: 0o644},
		{Name: "completions/_weir", Content: t.zsh, Mode: 0o644},
		{Name: "completions/weir.fish", Content: t.fish, Mode: 0o644},
		{Name: "completions/weir.ps1", Content: t.powershell, Mode: 0o644},
	}
}

// readTexts asks the program for its completions and help, and reads the documents of its source.
func readTexts(ctx context.Context, weir, source string, at time.Time) (*texts, error) {
	t := new(texts)
	// The repository's README leads to files that are not in an archive.
	for _, path := range []string{"LICENSE", "release/files/README.md", "CHANGELOG.md"} {
		name := filepath.Base(path)
		b, err := os.ReadFile(filepath.Join(source, path))
		if err != nil {
			return nil, err
		}
		t.documents = append(t.documents, file{Name: name, Content: b, Mode: 0o644})
	}
	licenses, err := linkedLicenses(ctx, source)
	if err != nil {
		return nil, err
	}
	t.documents = append(t.documents, file{Name: "LICENSES.txt", Content: licenses, Mode: 0o644})
	for shell, b := range map[string]*[]byte{"bash": &t.bash, "zsh": &t.zsh, "fish": &t.fish, "powershell": &t.powershell} {
		if *b, err = output(ctx, "", nil, weir, "completion", shell); err != nil {
			return nil, err
		}
	}
	t.policy = t.own("policy.yaml")
	t.manuals, err = manuals(func(command ...string) ([]byte, error) {
		return output(ctx, "", nil, weir, append(command, "--help")...)
	}, at)
	return t, err
}

// linkedLicenses returns the licenses of the modules that are linked into weir. They require that
// they are passed on with the program.
func linkedLicenses(ctx context.Context, source string) ([]byte, error) {
	list, err := output(ctx, source, []string{"GOFLAGS=", "GOWORK=off"}, "go", "list", "-deps", "-json=Module", "-tags=grpcnotrace", "./cmd/weir")
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var p struct {
			Module *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if p.Module != nil && !p.Module.Main {
			dirs[p.Module.Path+" "+p.Module.Version] = p.Module.Dir
		}
	}
	var b bytes.Buffer
	b.WriteString("The program contains these modules.\n")
	for _, module := range sortedKeys(dirs) {
		if err := addLicenses(&b, module, dirs[module]); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func addLicenses(b *bytes.Buffer, module, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, f := range files {
		name := strings.ToUpper(f.Name())
		if f.Type() != fs.FileMode(0) || !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "UNLICEN") && !strings.HasPrefix(name, "COPYING") && !strings.HasPrefix(name, "NOTICE") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "\n---- %s: %s\n\n%s\n", module, f.Name(), bytes.TrimSpace(text))
		found = true
	}
	if !found {
		return fmt.Errorf("%s has no license in %s: without one it cannot be passed on", module, dir)
	}
	return nil
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
