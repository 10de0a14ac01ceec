package weir

import (
	"net"
	"os/exec"
	"regexp"
	"testing"

	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/cli"
)

// listenAt listens on a free port of an address, and returns that port.
func listenAt(t *testing.T, address string) (l net.Listener, port string) {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return l, port
}

// The service manager's sockets belong to this server, too, for any value of
// --listen.
func TestAnUpstreamOnTheServiceManagersSocketIsRejected(t *testing.T) {
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	public, publicPort := listenAt(t, "127.0.0.1")
	operators, adminPort := listenAt(t, "127.0.0.1")
	for _, port := range []string{publicPort, adminPort} {
		data := t.TempDir()
		cmd := exec.Command("sh", "-c", `export LISTEN_PID=$$; exec "$0" "$@"`, program, "serve", "--listen", "127.0.0.1:1", "--data", data, "--policy", "contract", "--upstream", "http://localhost:"+port)
		cmd.Env = append(cleanEnv(), "LISTEN_FDS=2", "LISTEN_FDNAMES=http:admin")
		for _, l := range []net.Listener{public, operators} {
			socket, err := l.(*net.TCPListener).File()
			if err != nil {
				t.Fatal(err)
			}
			defer socket.Close()
			cmd.ExtraFiles = append(cmd.ExtraFiles, socket)
		}
		out, _ := cmd.CombinedOutput()
		want := `(?m)^error: --upstream http://localhost:` + port + ` is not a backend: this server itself listens on 127\.0\.0\.1:` + port + ` \(a socket of the service manager\)\nhint: --upstream takes the address of your backend`
		if !regexp.MustCompile(want).Match(out) || cmd.ProcessState.ExitCode() != cli.Misused {
			t.Errorf("status %d, and it prints\n%s\nwant %s", cmd.ProcessState.ExitCode(), out, want)
		}
		if _, err := admin.ReadOperator(data); err == nil {
			t.Error("it created a token before it failed")
		}
	}
}
