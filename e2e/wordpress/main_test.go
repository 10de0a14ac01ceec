package wordpress

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/e2e/child"
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// root is the directory of everything that the tests share.
var root = filepath.Join(os.TempDir(), fmt.Sprintf("weir-wordpress-%d", os.Getpid()))

// compiled has the files of PHP that were compiled.
var compiled = filepath.Join(root, "compiled")

func runTests(m *testing.M) int {
	defer os.RemoveAll(root)
	if err := os.MkdirAll(compiled, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer database.end()
	return m.Run()
}

// program builds the real weir, once.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(root, "weir")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../../cmd/weir").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// plugin builds the plugin, once, and unpacks it. It returns the directory of its files.
var plugin = sync.OnceValues(func() (string, error) {
	packed := filepath.Join(root, "weir-sync.zip")
	if out, err := exec.Command("php", "../../clients/wordpress/build", packed).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the plugin: %w\n%s", err, out)
	}
	dir := filepath.Join(root, "plugin")
	if err := unpack(packed, dir); err != nil {
		return "", fmt.Errorf("unpack the plugin: %w", err)
	}
	return filepath.Join(dir, "weir-sync"), nil
})

// A mariadb is a MariaDB server on a socket, started by the first test that needs it, shared by all
// of them, and ended by the last.
type mariadb struct {
	once    sync.Once
	err     error
	process *child.Process
	mu      sync.Mutex
	made    int
}

var database mariadb

func (m *mariadb) socket() string { return filepath.Join(root, "sql") }

func (m *mariadb) start() {
	data := filepath.Join(root, "data")
	install := exec.Command("mariadb-install-db", "--no-defaults", "--user=root", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")
	if out, err := install.CombinedOutput(); err != nil {
		m.err = fmt.Errorf("mariadb-install-db: %w (scripts/deps installs it)\n%s", err, out)
		return
	}
	server := exec.Command("/usr/sbin/mariadbd", "--no-defaults", "--user=root", "--datadir="+data, "--socket="+m.socket(), "--skip-networking",
		"--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=2", "--pid-file="+filepath.Join(root, "mariadb.pid"))
	if m.process, m.err = child.Start(server, filepath.Join(root, "mariadb.log"), syscall.SIGTERM); m.err != nil {
		return
	}
	m.err = m.process.Await("MariaDB answers", func() bool { return m.query("SELECT 1") == nil })
}

// query runs SQL as root.
func (m *mariadb) query(sql string) error {
	cmd := exec.Command("mariadb", "--no-defaults", "--user=root", "--socket="+m.socket(), "--batch")
	cmd.Stdin = strings.NewReader(sql)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", sql, err, out)
	}
	return nil
}

// create makes an empty database.
func (m *mariadb) create(t *testing.T) (name string) {
	t.Helper()
	m.once.Do(m.start)
	if m.err != nil {
		t.Fatal(m.err)
	}
	m.mu.Lock()
	m.made++
	name = fmt.Sprintf("site%d", m.made)
	m.mu.Unlock()
	if err := m.query("CREATE DATABASE " + name + " CHARACTER SET utf8mb4"); err != nil {
		t.Fatal(err)
	}
	return name
}

func (m *mariadb) end() {
	if m.process != nil {
		m.process.Stop(child.Patience)
	}
}
