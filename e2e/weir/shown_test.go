package weir

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A token is shown once. If that fails because its reader is gone, it does not stay in force.
func TestATokenWithoutAReaderIsRevoked(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	run := func(stdout *os.File, args ...string) (string, error) {
		t.Helper()
		cmd := exec.Command(path, append(args, "--data", data)...)
		cmd.Env = cleanEnv()
		var out bytes.Buffer
		cmd.Stderr = &out
		if cmd.Stdout = &out; stdout != nil {
			cmd.Stdout = stdout
		}
		err := cmd.Run()
		return out.String(), err
	}
	for create, list := range map[string][]string{
		"token create --workspace acme":   {"token", "list"},
		"admin create ada --role operate": {"admin", "list"},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		out, err := run(w, strings.Fields(create)...)
		_ = w.Close()
		if err == nil || !strings.Contains(out, "show the token, which is revoked now: write /dev/stdout: broken pipe") {
			t.Errorf("%s ends with %v and prints %q", create, err, out)
		}
		if out, err := run(nil, list...); err != nil || strings.Contains(out, "in force") || strings.Contains(out, "ada") {
			t.Errorf("after %s the tokens are %q, %v", create, out, err)
		}
	}
}
