package wordpress

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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

// A mariadb is a MariaDB server on a socket, with a database of a new WordPress. The first test
// that needs it starts it, all of them share it, and the last ends it.
type mariadb struct {
	once    sync.Once
	err     error
	process *child.Process
	made    atomic.Int64
}

var database mariadb

func socket() string { return filepath.Join(root, "sql") }

func (m *mariadb) start() (err error) {
	data := filepath.Join(root, "data")
	install := exec.Command("mariadb-install-db", "--no-defaults", "--user=root", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w (scripts/deps installs it)\n%s", err, out)
	}
	server := exec.Command("/usr/sbin/mariadbd", "--no-defaults", "--user=root", "--datadir="+data, "--socket="+socket(), "--skip-networking",
		"--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=2", "--pid-file="+filepath.Join(root, "mariadb.pid"))
	if m.process, err = child.Start(server, filepath.Join(root, "mariadb.log"), syscall.SIGTERM); err != nil {
		return err
	}
	return m.process.Await("MariaDB answers", func() bool {
		_, err := m.query("SELECT 1")
		return err == nil
	})
}

// query runs SQL as root, and returns the lines of its results.
func (m *mariadb) query(sql string) ([]string, error) {
	cmd := exec.Command("mariadb", "--no-defaults", "--user=root", "--socket="+socket(), "--batch", "--skip-column-names")
	cmd.Stdin = strings.NewReader(sql)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", sql, err, out)
	}
	return strings.Fields(string(out)), nil
}

// create makes a database with copies of tables of another.
func (m *mariadb) create(name, of string, tables []string) error {
	sql := []string{fmt.Sprintf("CREATE DATABASE %s CHARACTER SET utf8mb4;", name)}
	for _, t := range tables {
		sql = append(sql, fmt.Sprintf("CREATE TABLE %[1]s.%[3]s LIKE %[2]s.%[3]s; INSERT INTO %[1]s.%[3]s SELECT * FROM %[2]s.%[3]s;", name, of, t))
	}
	_, err := m.query(strings.Join(sql, "\n"))
	return err
}

// copyOf copies a database, and returns the name of the copy.
func (m *mariadb) copyOf(of string) (name string, err error) {
	tables, err := m.query("SHOW TABLES FROM " + of)
	if err != nil {
		return "", err
	}
	if len(tables) == 0 {
		return "", fmt.Errorf("database %s has no tables: a test could not install WordPress", of)
	}
	name = fmt.Sprintf("site%d", m.made.Add(1))
	return name, m.create(name, of, tables)
}

func (m *mariadb) end() {
	if m.process != nil {
		m.process.Stop(child.Patience)
	}
}
