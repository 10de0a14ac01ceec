package wordpress

import (
	"net/http"
	"strings"
	"testing"
)

// puts returns how many documents the site has sent to be stored.
func (s *service) puts() (n int) {
	for _, x := range s.received() {
		if x.method == http.MethodPut {
			n += strings.Count(x.body, `{"id":"`)
		}
	}
	return n
}

// wp weir sync sends what waits, and with its options more than that. It ends with 1 if something
// could not be sent.
func TestTheCommand(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.php(`define('WP_CLI', true);`, ``)
	s.activate(service)
	if class := s.php(`define('WP_CLI', true);`, `echo WP_CLI::$commands['weir'];`); class != `WeirSync\Command` {
		t.Errorf("the command is %q", class)
	}
	s.publish("One", "Two", "Three")
	wantPuts := func(code string, more int, output string) {
		t.Helper()
		was := service.puts()
		if out := s.run(code); !strings.Contains(out, output) {
			t.Errorf("%s: %s, want %s", code, out, output)
		}
		if n := service.puts() - was; n != more {
			t.Errorf("%s sends %d documents, want %d", code, n, more)
		}
	}
	wantPuts(`weir_sync();`, 3, "Success: 3 documents sent or deleted; the service has 3, 0 wait, 0 failed.")
	wantPuts(`weir_sync();`, 0, "Success: 0 documents sent or deleted; the service has 3")
	wantPuts(`weir_sync(['compare' => true]);`, 0, "Success: 0 documents")
	wantPuts(`weir_sync(['all' => true]);`, 3, "Success: 3 documents")
	// An import that bypasses WordPress.
	s.run(`$wpdb->query("UPDATE $wpdb->posts SET post_title = 'Uno' WHERE post_title = 'One'"); $wpdb->query("DELETE FROM $wpdb->posts WHERE post_title = 'Two'");`)
	wantPuts(`weir_sync();`, 0, "Success: 0 documents")
	wantPuts(`weir_sync(['compare' => true]);`, 1, "Success: 2 documents sent or deleted; the service has 2")
	if got := s.run(`(new WeirSync\Command())->status([], []);`); !strings.Contains(got, "sent      2\nwaiting   0\nfailed    0\nbudget    ") || !strings.Contains(got, " of 600, restored ") {
		t.Errorf("the status is\n%s", got)
	}
	s.write("wp-content/mu-plugins/bad.php", `<?php add_filter('weir_sync_document', function ($document) {
		$document['url'] = 'ftp://example.com';
		return $document;
	});`)
	out, err := s.command("", `weir_sync(['all' => true]);`).Output()
	if err == nil || !strings.Contains(string(out), "Error: 0 documents sent or deleted; the service has 0, 0 wait, 2 failed.") || !strings.Contains(string(out), `Warning: post `) {
		t.Errorf("with bad documents: %v\n%s", err, out)
	}
	s.write("wp-content/mu-plugins/bad.php", "<?php")
	wantPuts(`(new WeirSync\Command())->retry([], []);`, 2, "Success: 2 documents")
	for _, bad := range []string{"x", "-1"} {
		if out, err := s.command("", `weir_sync(['max-wait' => '`+bad+`']);`).Output(); err == nil || !strings.Contains(string(out), "--max-wait: expected a number of seconds") {
			t.Errorf("--max-wait=%s: %v %s", bad, err, out)
		}
	}
}
