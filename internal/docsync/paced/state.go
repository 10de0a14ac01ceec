package paced

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// The default file of a state is not in the folder, which may be read-only, under version control
// or published as it is. It is in the directory that the system has for what belongs to a user and
// must last.

const (
	stateHint  = "give the path of the state with --state FILE"
	folderHint = "name a folder that exists and that you may read"
)

// StateFile returns the default file that records what of a folder a server has acknowledged. The
// folder is identified by its path without symbolic links, so that it has one state under all its
// names; a folder that was moved has another one. env holds the process's variables.
func StateFile(env map[string]string, dir string, to *url.URL) (string, error) {
	home, err := stateHome(env, runtime.GOOS)
	if err != nil {
		return "", failure(err, stateHint)
	}
	real, err := filepath.Abs(dir)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return "", failure(err, folderHint)
	}
	sum := sha256.Sum256([]byte(real + "\x00" + to.String()))
	name := cmp.Or(notPlain.ReplaceAllString(filepath.Base(real), ""), "folder")
	return filepath.Join(home, "weir", "sync", name[:min(len(name), 40)]+"-"+hex.EncodeToString(sum[:8])), nil
}

// notPlain matches what of a folder's name is left out of a file's name.
var notPlain = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// stateHome returns the directory for the states of a user's programs: XDG_STATE_HOME if it is set,
// else the directory of the system.
func stateHome(env map[string]string, system string) (string, error) {
	if dir := env["XDG_STATE_HOME"]; filepath.IsAbs(dir) { // a relative path is to be ignored
		return dir, nil
	}
	below, variable := []string{".local", "state"}, "HOME"
	switch system {
	case "windows":
		below, variable = nil, "LOCALAPPDATA"
	case "darwin", "ios":
		below = []string{"Library", "Application Support"}
	}
	if home := env[variable]; filepath.IsAbs(home) {
		return filepath.Join(append([]string{home}, below...)...), nil
	}
	return "", fmt.Errorf("find a place for the state: neither XDG_STATE_HOME nor %s is an absolute path", variable)
}

// makeStateHome makes the directory of a default state. Only its owner can read it.
func makeStateHome(state string) error {
	if err := os.MkdirAll(filepath.Dir(state), 0o700); err != nil {
		return failure(err, stateHint)
	}
	return nil
}

// Normalize returns a server's URL in the form that a state is kept under: the host in lower case,
// no slash at the end. Escapes in the path stay as they are.
func Normalize(u *url.URL) *url.URL {
	one := *u
	one.Host, one.RawPath = strings.ToLower(u.Host), strings.TrimRight(u.EscapedPath(), "/")
	if path, err := url.PathUnescape(one.RawPath); err == nil {
		one.Path = path
	}
	return &one
}
