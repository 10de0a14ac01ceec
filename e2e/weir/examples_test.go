package weir

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/weirlimit/weir/e2e/nginxtest"
	"github.com/weirlimit/weir/e2e/redistest"
)

// The commands that examples show run unchanged, against servers with the flags and
// files of the example. Only addresses, ports and directories differ.

const examples = repository + "/examples/"

// A shownCommand is a command in a text, and its documented output.
type shownCommand struct {
	command, prints string
}

// shownCommands returns the commands in a file's comments: lines that begin with "$
// ", and their output below.
func shownCommands(text string) (all []shownCommand) {
	for line := range strings.Lines(text) {
		line, comment := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "#\t")
		command, begins := strings.CutPrefix(line, "$ ")
		switch {
		case !comment:
			if len(all) > 0 && all[len(all)-1].command != "" {
				all = append(all, shownCommand{}) // the output has ended
			}
		case begins:
			all = append(all, shownCommand{command: command})
		case len(all) > 0:
			all[len(all)-1].prints += line + "\n"
		}
	}
	kept := all[:0]
	for _, s := range all {
		if s.command != "" {
			kept = append(kept, s)
		}
	}
	return kept
}

// shell runs a command in a directory, and returns its output.
func shell(t *testing.T, dir string, env []string, command string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir, cmd.Env = dir, append(cleanEnv(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// serveShown runs weir serve in a directory and returns its port once it is ready.
// If it logs an error, the test fails.
func serveShown(t *testing.T, dir string, env []string, args ...string) (port string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"serve"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(cleanEnv(), env...)
	p, err := launch(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	if _, err := p.stdout.await(ready); err != nil {
		t.Fatalf("%v: %v\nstandard error:\n%s", args, err, p.stderr)
	}
	if output := p.stderr.String(); strings.Contains(output, "level=ERROR") || strings.Contains(output, "ignored") {
		t.Errorf("%v: it logs an error:\n%s", args, output)
	}
	m, err := p.stdout.await(listening)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return u.Port()
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A composed service holds the parts of a compose file that the test uses.
type composed struct {
	Command     any // a text or a list
	Environment map[string]string
	Volumes     []string
	Ports       []string
}

// words returns the command's words.
func (c composed) words(t *testing.T) (all []string) {
	t.Helper()
	switch command := c.Command.(type) {
	case string:
		return strings.Fields(command)
	case []any:
		for _, word := range command {
			all = append(all, fmt.Sprint(word))
		}
		return all
	}
	t.Fatalf("a command is %v", c.Command)
	return nil
}

// mounted returns the file of the example that a service has at path.
func (c composed) mounted(t *testing.T, path string) string {
	t.Helper()
	for _, v := range c.Volumes {
		if parts := strings.Split(v, ":"); len(parts) > 1 && parts[1] == path {
			path, err := filepath.Abs(filepath.Join(examples, "scale", parts[0]))
			if err != nil {
				t.Fatal(err)
			}
			return path
		}
	}
	t.Fatalf("nothing is mounted at %s: %v", path, c.Volumes)
	return ""
}

// The compose file's processes without Docker: its store, nodes and backend, with
// its flags, variables and files.
func TestTheComposeDemonstrationPrintsWhatItShows(t *testing.T) {
	text := readText(t, examples+"scale/compose.yaml")
	var file struct{ Services map[string]composed }
	if err := yaml.UnmarshalWithOptions([]byte(text), &file, yaml.AllowDuplicateMapKey()); err != nil {
		t.Fatal(err)
	}
	commands := shownCommands(text)
	if len(commands) < 4 {
		t.Fatalf("%d commands are shown", len(commands))
	}
	dir := t.TempDir()
	shell(t, dir, nil, commands[0].command)
	up, isUp := strings.CutSuffix(commands[1].command, " docker compose up --build")
	if !isUp {
		t.Fatalf("the second command is %q", commands[1].command)
	}
	password := strings.TrimSpace(shell(t, dir, nil, up+"; echo $STORE_PASSWORD"))

	asShown := regexp.MustCompile(`\$\{STORE_PASSWORD:\?[^}]*\}`).ReplaceAllString(file.Services["store"].Command.(string), password)
	store := redistest.Start(t, strings.Fields(asShown)[1:]...)
	backend := file.Services["backend"]
	nginx := nginxtest.Start(t, strings.Replace(readText(t, backend.mounted(t, "/etc/nginx/conf.d/default.conf")), "listen 80;", "listen LISTEN;", 1))

	ports := []string{}
	for _, name := range []string{"weir-1", "weir-2"} {
		node := file.Services[name]
		values := strings.NewReplacer("${STORE_PASSWORD}", password, "@store:6379", "@"+store.Addr(), "http://backend:80", "http://"+nginx.Addr,
			"/run/secrets/key-secret", filepath.Join(dir, "key-secret"), "/etc/weir/policy.yaml", node.mounted(t, "/etc/weir/policy.yaml"))
		words := node.words(t)
		for _, want := range []string{"serve", "--listen=:8080"} {
			if !strings.Contains(strings.Join(words, " "), want) {
				t.Errorf("%s runs %v, without %s", name, words, want)
			}
		}
		args := []string{"--listen=:0"}
		for _, word := range words[1:] {
			switch {
			case strings.HasPrefix(word, "--listen="):
			case strings.HasPrefix(word, "--data="):
				args = append(args, "--data="+t.TempDir())
			default:
				args = append(args, values.Replace(word))
			}
		}
		var env []string
		for variable, value := range node.Environment {
			env = append(env, variable+"="+values.Replace(value))
		}
		outside, _, _ := strings.Cut(node.Ports[0], ":")
		ports = append(ports, outside, serveShown(t, t.TempDir(), env, args...))
	}
	for _, c := range commands[2:] {
		if got := shell(t, dir, nil, strings.NewReplacer(ports...).Replace(c.command)); strings.ReplaceAll(got, "\r", "") != c.prints {
			t.Errorf("%s prints\n%s\nand the example shows\n%s", c.command, got, c.prints)
		}
	}
}

// The commands in the first lines of the other examples run in the files' order,
// because one may need the output of another.
func TestTheCommandsOfTheExamplesSucceed(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + filepath.Dir(path) + ":" + os.Getenv("PATH"), "WEIR_LISTEN=127.0.0.1:0"}
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "examples"), os.DirFS(examples)); err != nil {
		t.Fatal(err)
	}
	served, run := 0, 0
	for _, name := range []string{"costly.yaml", "policies/public-api.yaml", "policies/llm-api.yaml", "policies/login.yaml", "observability/alerts.yml"} {
		dir := filepath.Dir(filepath.Join(root, "examples", name))
		if name == "costly.yaml" { // its commands are relative to the repository
			dir = root
		}
		var script []string
		for _, c := range shownCommands(readText(t, filepath.Join(examples, name))) {
			if args, serves := strings.CutPrefix(c.command, "weir serve "); serves {
				if len(script) > 0 {
					shell(t, dir, env, "set -e\n"+strings.Join(script, "\n"))
				}
				serveShown(t, dir, append(env, "WEIR_DATA="+t.TempDir()), strings.Fields(args)...)
				script, served = nil, served+1
				continue
			}
			script, run = append(script, c.command), run+1
		}
		shell(t, dir, env, "set -e\n"+strings.Join(script, "\n"))
	}
	if served != 4 || run < 4 {
		t.Errorf("%d servers and %d commands are shown", served, run)
	}
}
