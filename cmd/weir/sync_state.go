package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/folder"
	"github.com/weirlimit/weir/internal/plaintext"
)

// Where weir sync keeps its state if --state does not say: not in the folder, which may be read
// only, under version control, or published as it is; but where the system has programs keep what
// belongs to a user and must last.

const stateHint = "give the path of the state with --state FILE"

// stateHome returns the directory for the states of a user's programs: XDG_STATE_HOME if that is
// set, whatever the system, or what the system has for it.
func stateHome(e cli.Environment, system string) (string, error) {
	if dir := e["XDG_STATE_HOME"]; filepath.IsAbs(dir) { // a relative one is to be ignored
		return dir, nil
	}
	below, variable := []string{".local", "state"}, "HOME"
	switch system {
	case "windows":
		below, variable = nil, "LOCALAPPDATA"
	case "darwin", "ios":
		below = []string{"Library", "Application Support"}
	}
	if home := e[variable]; filepath.IsAbs(home) {
		return filepath.Join(append([]string{home}, below...)...), nil
	}
	return "", fmt.Errorf("find a place for the state: neither XDG_STATE_HOME nor %s is an absolute path", variable)
}

// plain is what of a folder's name goes into a file's name.
var plain = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// syncState returns the file that remembers what of a folder a server has acknowledged. The folder
// is known by its path without symbolic links, so that it has one state by whatever name it is
// called; a folder that was moved has another.
func syncState(e cli.Environment, dir string, to *url.URL) (string, error) {
	home, err := stateHome(e, runtime.GOOS)
	if err != nil {
		return "", cli.Fail(err, stateHint)
	}
	real, err := filepath.Abs(dir)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return "", cli.Fail(errors.New(plaintext.Line(err.Error(), 500)), "name a folder that is there, and that you may read")
	}
	sum := sha256.Sum256([]byte(real + "\x00" + to.String()))
	name := cmp.Or(plain.ReplaceAllString(filepath.Base(real), ""), "folder")
	return filepath.Join(home, "weir", "sync", name[:min(len(name), 40)]+"-"+hex.EncodeToString(sum[:8])), nil
}

// makeStateHome makes the directory of a state that --state did not name, for its owner alone.
func makeStateHome(state string) error {
	if err := os.MkdirAll(filepath.Dir(state), 0o700); err != nil {
		return cli.Fail(errors.New(plaintext.Line(err.Error(), 500)), stateHint)
	}
	return nil
}

// excludes is a repeatable flag: patterns of what is passed over.
type excludes []string

func (x *excludes) Set(value string) error {
	if err := folder.CheckPattern(value); err != nil {
		return err
	}
	*x = append(*x, value)
	return nil
}

func (x *excludes) String() string { return "" }
func (x *excludes) Type() string   { return "PATTERN" }
func (x *excludes) Repeatable()    {}
