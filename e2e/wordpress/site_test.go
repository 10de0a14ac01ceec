package wordpress

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/e2e/child"
)

// debian is where Debian's package has WordPress.
const debian = "/usr/share/wordpress"

// A site is an installed WordPress with a database of its own. Its scheduled events run only when a
// test says so.
type site struct {
	*testing.T
	dir string
	url string // set by listen
}

// config is wp-config.php, with placeholders for the database, the socket and the directory.
const config = `<?php
define('DB_NAME', '%[1]s');
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:%[2]s');
define('DB_CHARSET', 'utf8mb4');
define('WP_CONTENT_DIR', '%[3]s/wp-content');
define('WP_DEFAULT_THEME', 'bare');
define('DISABLE_WP_CRON', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('WP_DEBUG', true);
define('WP_DEBUG_DISPLAY', false);
define('WP_DEBUG_LOG', '%[3]s/debug.log');
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $name) {
	define($name . '_KEY', "$name key");
	define($name . '_SALT', "$name salt");
}
$table_prefix = 'wp_';
require_once ABSPATH . 'wp-settings.php';
`

// install makes a site of its own with the plugin, not yet active.
func install(t *testing.T) *site {
	t.Helper()
	database.once.Do(func() {
		if database.err = database.start(); database.err == nil {
			database.err = database.create("new", "", nil)
			unpackSite(t, "new").php(`define('WP_INSTALLING', true);`, `
				require_once ABSPATH . 'wp-admin/includes/upgrade.php';
				add_filter('pre_wp_mail', '__return_true');
				wp_install('Test', 'admin', 'admin@example.com', true, '', 'secret');
				update_option('siteurl', 'http://127.0.0.1');
				update_option('home', 'http://shop.example.com');
				update_option('permalink_structure', '/%postname%/');
				foreach (get_posts(['post_type' => 'any', 'post_status' => 'any', 'numberposts' => -1]) as $p) wp_delete_post($p->ID, true);
			`)
		}
	})
	if database.err != nil {
		t.Fatal(database.err)
	}
	name, err := database.copyOf("new")
	if err != nil {
		t.Fatal(err)
	}
	s := unpackSite(t, name)
	t.Cleanup(s.wantCleanLog)
	return s
}

// unpackSite makes the files of a site with a database. Nothing of it may ask other hosts: a plugin
// of the tests refuses that.
func unpackSite(t *testing.T, database string) *site {
	t.Helper()
	files, err := plugin()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, dir: t.TempDir(), url: "http://127.0.0.1"}
	entries, err := os.ReadDir(debian)
	if err != nil {
		t.Fatalf("%v (scripts/deps installs WordPress)", err)
	}
	for _, e := range entries {
		if e.Name() != "wp-config.php" && e.Name() != "wp-content" {
			s.must(os.Symlink(filepath.Join(debian, e.Name()), filepath.Join(s.dir, e.Name())))
		}
	}
	s.write("wp-config.php", fmt.Sprintf(config, database, socket(), s.dir))
	// WordPress resolves symbolic links to find itself, unless it is told where it is.
	s.write("prepend.php", fmt.Sprintf("<?php define('ABSPATH', '%s/'); $_SERVER += ['HTTP_HOST' => '127.0.0.1'];", s.dir))
	s.write("wp-content/themes/bare/style.css", "/* Theme Name: bare */")
	s.write("wp-content/themes/bare/index.php", "<?php echo 'A page.'; wp_footer();")
	s.must(os.CopyFS(filepath.Join(s.dir, "wp-content/plugins/weir-sync"), os.DirFS(files)))
	test, err := os.ReadFile("testdata/harness.php")
	s.must(err)
	s.write("wp-content/mu-plugins/harness.php", string(test))
	return s
}

// activate activates the plugin and enters the settings of a service, with consent.
func (s *site) activate(service *service) {
	s.Helper()
	s.run(`activate_plugin('weir-sync/weir-sync.php');`)
	s.enter(service, true)
}

// enter enters settings as the settings page does.
func (s *site) enter(service *service, consent bool) {
	s.Helper()
	form := map[string]any{"url": service.url, "token": service.token, "types": []string{"post", "page"}}
	if consent {
		form["consent"] = "1"
	}
	s.run(`submit_form('weir_sync_save', json_decode(stream_get_contents(STDIN), true));`, form)
}

// run runs PHP in the site and returns what it prints. The first of input, if there is one, is its
// standard input, as JSON.
func (s *site) run(code string, input ...any) string {
	s.Helper()
	return s.php("", code, input...)
}

// php runs PHP in the site, with a part before WordPress is loaded.
func (s *site) php(before, code string, input ...any) string {
	s.Helper()
	cmd := s.command(before, code)
	if len(input) > 0 {
		encoded, err := json.Marshal(input[0])
		s.must(err)
		cmd.Stdin = bytes.NewReader(encoded)
	}
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		s.Fatalf("%v\n%s\n%s%s\n%s", err, code, out, &problem, s.log())
	}
	return string(out)
}

// command returns a command that runs PHP in the site.
func (s *site) command(before, code string) *exec.Cmd {
	file := filepath.Join(s.TempDir(), "run.php")
	text := "<?php " + before + " require ABSPATH . 'wp-load.php'; require_once ABSPATH . 'wp-admin/includes/admin.php';\n" + code
	s.must(os.WriteFile(file, []byte(text), 0o600))
	cmd := exec.Command("php", s.flags("-d", "error_log="+filepath.Join(s.dir, "debug.log"), file)...)
	cmd.Dir = s.dir
	return cmd
}

// flags returns PHP's flags for the site, and more. What is compiled is kept in files, since each
// process would compile all of WordPress again.
func (s *site) flags(more ...string) []string {
	return append([]string{
		"-d", "auto_prepend_file=" + filepath.Join(s.dir, "prepend.php"),
		"-d", "opcache.enable_cli=1", "-d", "opcache.file_cache=" + compiled, "-d", "opcache.file_cache_only=1", "-d", "opcache.revalidate_freq=0",
	}, more...)
}

// json runs PHP in the site and reads the value of an expression.
func (s *site) json(expression string, value any) {
	s.Helper()
	if out := s.run("echo json_encode(" + expression + ");"); json.Unmarshal([]byte(out), value) != nil {
		s.Fatalf("%s: %s", expression, out)
	}
}

// sync runs the command that waits for its budget, to the end.
func (s *site) sync() {
	s.Helper()
	s.run(`weir_sync();`)
}

// listen serves the site's pages with PHP's own server until the test ends.
func (s *site) listen() {
	s.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	address := l.Addr().String()
	s.must(l.Close())
	s.url = "http://" + address
	s.run(fmt.Sprintf(`update_option('siteurl', '%s');`, s.url))
	cmd := exec.Command("php", s.flags("-S", address, "-t", s.dir)...)
	server, err := child.Start(cmd, filepath.Join(s.dir, "server.log"), syscall.SIGTERM)
	s.must(err)
	s.Cleanup(server.Kill)
	s.must(server.Await("the site listens", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	}))
}

// log returns what PHP and the database have complained about, without what WordPress itself does
// under a newer PHP.
func (s *site) log() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "debug.log"))
	if err != nil {
		return ""
	}
	var complaints strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "Deprecated: ") || !strings.Contains(line, " in "+debian) {
			complaints.WriteString(line)
		}
	}
	return complaints.String()
}

// wantCleanLog fails the test if PHP or the database has complained.
func (s *site) wantCleanLog() {
	if text := s.log(); text != "" {
		s.Errorf("the site's log:\n%s", text)
	}
}

func (s *site) write(name, text string) {
	s.Helper()
	path := filepath.Join(s.dir, name)
	s.must(os.MkdirAll(filepath.Dir(path), 0o755))
	s.must(os.WriteFile(path, []byte(text), 0o600))
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// unpack unpacks a zip.
func unpack(name, dir string) error {
	z, err := zip.OpenReader(name)
	if err != nil {
		return err
	}
	defer z.Close()
	for _, f := range z.File {
		if !filepath.IsLocal(f.Name) || strings.HasSuffix(f.Name, "/") {
			return fmt.Errorf("%s: not a file below the directory", f.Name)
		}
		text, err := z.Open(f.Name)
		if err != nil {
			return err
		}
		all, err := io.ReadAll(text)
		text.Close()
		if err != nil {
			return err
		}
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, all, 0o644); err != nil {
			return err
		}
	}
	return nil
}
