package wordpress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// An item is a row of the plugin's table.
type item struct {
	Status, Error string
	Attempts      int `json:",string"`
}

// items returns the rows by the title of their post.
func (s *site) items() map[string]item {
	s.Helper()
	var rows map[string]item
	s.json(`array_column($wpdb->get_results("SELECT post_title, status, IFNULL(error, '') AS error, attempts FROM {$wpdb->prefix}weir_sync_items JOIN $wpdb->posts ON ID = object_id", ARRAY_A), null, 'post_title')`, &rows)
	return rows
}

// publish publishes posts with these titles.
func (s *site) publish(titles ...string) {
	s.Helper()
	s.run(`foreach (json_decode(stream_get_contents(STDIN)) as $title) wp_insert_post(['post_title' => $title, 'post_content' => "About $title.", 'post_status' => 'publish']);`, titles)
}

// refuse returns an answer to the requests that store documents.
func refuse(status int, when func(body string) bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		text, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(text))
		if err != nil || r.Method != http.MethodPut || !when(string(text)) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, `{"error":{"code":"test","message":"no\u0007 <b>thanks</b>"}}`)
		return true
	}
}

// A document that the service refuses does not keep the others back. It is not sent again until its
// post changes, or someone asks for it.
func TestARefusedDocumentIsReportedAlone(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.write("wp-content/mu-plugins/bad.php", `<?php add_filter('weir_sync_document', function ($document, $post) {
		if ('Bad' === $post->post_title) $document['url'] = 'ftp://example.com';
		return $document;
	}, 10, 2);`)
	s.publish("Good", "Bad", "Fine")
	s.run(`do_action('weir_sync_run');`)
	if n := len(service.documents(service.own)); n != 2 {
		t.Errorf("the service has %d of 2 good documents", n)
	}
	rows := s.items()
	if bad := rows["Bad"]; bad.Status != "failed" || !strings.Contains(bad.Error, `field "url"`) {
		t.Errorf("the bad one: %+v", bad)
	}
	sent := len(service.received())
	s.run(`do_action('weir_sync_run'); run_due_events();`)
	if n := len(service.received()); n != sent {
		t.Errorf("%d more requests for a document that was refused", n-sent)
	}
	s.write("wp-content/mu-plugins/bad.php", "<?php")
	s.run(`submit_form('weir_sync_act', ['what' => 'failed']);`)
	s.run(`run_due_events();`)
	if n := len(service.documents(service.own)); n != 3 {
		t.Errorf("after another try the service has %d of 3", n)
	}
}

// A batch that is too large is halved until it fits.
func TestATooLargeBatchIsHalved(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.run(`many_posts(100);`)
	s.activate(service)
	const max = 4000
	service.replaceAnswers(refuse(http.StatusRequestEntityTooLarge, func(body string) bool { return len(body) > max }))
	s.run(`do_action('weir_sync_run');`)
	if n := len(service.documents(service.own)); n != 100 {
		t.Errorf("the service has %d of 100", n)
	}
}

// If the service fails with one document, the others arrive, and that one has failed after some
// attempts.
func TestADocumentThatTheServiceFailsWithIsFound(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.publish("One", "Two", "Poison", "Four", "Five")
	service.replaceAnswers(refuse(http.StatusInternalServerError, func(body string) bool { return strings.Contains(body, "Poison") }))
	for range 12 {
		s.run(`$wpdb->query("UPDATE {$wpdb->prefix}weir_sync_items SET not_before = 0"); do_action('weir_sync_run');`)
	}
	if n := len(service.documents(service.own)); n != 4 {
		t.Errorf("the service has %d of 4", n)
	}
	if row := s.items()["Poison"]; row.Status != "failed" || row.Error != "The service answered 500: no <b>thanks</b>" {
		t.Errorf("the document that it fails with: %+v", row)
	}
}

// While the service is away, nothing fails for good, and the pauses become longer.
func TestAnOutageLosesNothing(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.publish("One", "Two")
	all := func(string) bool { return true }
	service.replaceAnswers(refuse(http.StatusServiceUnavailable, all))
	var pauses []int
	for range 4 {
		var pause int
		s.run(`do_action('weir_sync_run');`)
		s.json(`wp_next_scheduled('weir_sync_run') - time()`, &pause)
		pauses = append(pauses, pause)
	}
	for i, want := range []int{60, 120, 240, 480} {
		if pauses[i] > want || pauses[i] < want-30 {
			t.Errorf("pause %d is %d s, want %d", i+1, pauses[i], want)
		}
	}
	service.replaceAnswers(nil)
	s.run(`$wpdb->query("UPDATE {$wpdb->prefix}weir_sync_items SET not_before = 0"); do_action('weir_sync_run');`)
	if n := len(service.documents(service.own)); n != 2 {
		t.Errorf("after the outage the service has %d of 2", n)
	}
}

// Posts that cannot be made into documents are reported, also if PHP ends there, and the others
// arrive.
func TestAPostThatPHPEndsOnIsFound(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	// As on an old site.
	s.run(`$wpdb->query("ALTER TABLE {$wpdb->prefix}weir_sync_items CONVERT TO CHARACTER SET utf8mb3");`)
	s.write("wp-content/mu-plugins/bad.php", `<?php
		add_shortcode('throws', function () { throw new Exception("the shortcode is broken \u{1F4A5}"); });
		add_shortcode('fills', function () { ini_set('memory_limit', '128M'); return str_repeat('x', 1 << 30); });
		add_shortcode('exits', function () { exit; });
		add_shortcode('loops', function () { set_time_limit(1); while (true); });
		add_shortcode('kills', function () { posix_kill(getmypid(), 9); });
		add_shortcode('prints', function () { ob_start(); echo 'printed'; return 'returned'; });`)
	s.publish("First") // is made before PHP ends, each time
	for _, name := range []string{"throws", "fills", "exits", "loops", "kills", "prints"} {
		s.run(fmt.Sprintf(`wp_insert_post(['post_title' => '%s', 'post_content' => '[%[1]s]', 'post_status' => 'publish']);`, name))
	}
	s.publish("Good")
	for range 14 {
		cmd := s.command("", `$wpdb->query("UPDATE {$wpdb->prefix}weir_sync_items SET not_before = 0"); do_action('weir_sync_run');`)
		_ = cmd.Run() // some are killed
		s.passLock()
	}
	titles := map[string]bool{}
	for _, d := range service.documents(service.own) {
		titles[d.Title] = true
	}
	if len(titles) != 3 || !titles["First"] || !titles["Good"] || !titles["prints"] {
		t.Errorf("the service has %v", titles)
	}
	rows := s.items()
	for title, want := range map[string]string{
		"throws": "the shortcode is broken",
		"fills":  "PHP: Allowed memory size",
		"exits":  "PHP: exit",
		"loops":  "PHP: Maximum execution time",
		"kills":  "PHP ended several times",
	} {
		if row := rows[title]; row.Status != "failed" || !strings.HasPrefix(row.Error, want) {
			t.Errorf("%s: %+v, want %q", title, row, want)
		}
	}
	s.write("debug.log", "")
}

// The token is for the service alone: it follows no redirect, neither of the plugin's requests nor
// of another plugin's.
func TestTheTokenStaysWithTheService(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	elsewhere := make(chan http.Header, 10)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere <- r.Header.Clone()
		w.Header().Set("X-RateLimit-Limit", "60")
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Add(time.Minute).Unix()))
	}))
	t.Cleanup(other.Close)
	s.activate(service)
	service.replaceAnswers(func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
		return true
	})
	s.publish("A post")
	s.run(`do_action('weir_sync_run');`)
	if len(elsewhere) != 0 {
		t.Errorf("the plugin follows a redirect with %v", <-elsewhere)
	}
	var status struct{ Problem string }
	s.json(`WeirSync\State::get('status')`, &status)
	if !strings.Contains(status.Problem, "redirects to "+other.URL) {
		t.Errorf("the problem is %q", status.Problem)
	}
	s.run(fmt.Sprintf(`wp_remote_get('%s/v1/wp/status', ['headers' => ['authorization' => 'Bearer %s', 'X-Other' => '1']]);`, service.url, service.token))
	if len(elsewhere) != 1 {
		t.Fatalf("another plugin's request arrives elsewhere %d times", len(elsewhere))
	}
	if got := <-elsewhere; got.Get("Authorization") != "" || got.Get("X-Other") != "1" {
		t.Errorf("another plugin's request arrives elsewhere as %v", got)
	}
	// The other server's fields say nothing about the budget.
	service.replaceAnswers(nil)
	s.run(`do_action('weir_sync_run');`)
	if n := len(service.documents(service.own)); n != 1 {
		t.Errorf("after the redirect has gone the service has %d of 1", n)
	}
}

// Something that answers 200 is not taken for the service.
func TestAnotherServerIsNotTakenForTheService(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`do_action('weir_sync_run');`)
	s.publish("A post")
	for _, answer := range []string{"<html>Welcome</html>", `{"created":0,"updated":0,"unchanged":0}`, `{"created":1}`, `[]`} {
		service.replaceAnswers(func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, answer)
			return true
		})
		s.run(`do_action('weir_sync_run');`)
		if row := s.items()["A post"]; row.Status != "waiting" {
			t.Errorf("after %s the post is %+v", answer, row)
		}
	}
	service.replaceAnswers(nil)
	s.run(`do_action('weir_sync_run');`)
	if n := len(service.documents(service.own)); n != 1 {
		t.Errorf("the service has %d of 1", n)
	}
}

// With a token of another workspace, everything is sent to that. With another token of the same
// workspace, nothing is.
func TestAnotherWorkspaceGetsEverything(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.publish("One", "Two")
	s.run(`run_due_events();`)
	stored := func() (n int) {
		for _, x := range service.received() {
			if x.method == http.MethodPut {
				n++
			}
		}
		return n
	}
	was := stored()
	service.token = service.mint("site")
	s.enter(service, true)
	s.run(`run_due_events();`)
	if n := stored(); n != was {
		t.Errorf("%d more batches for a new token of the same workspace", n-was)
	}
	service.token = service.mint("another")
	s.enter(service, true)
	s.run(`run_due_events();`)
	if n := len(service.documents(service.mint("another"))); n != 2 {
		t.Errorf("the other workspace has %d of 2", n)
	}
}

// A token that is not in force is shown as a problem, without the token.
func TestATokenThatIsNotInForceIsReported(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	service.token = "weir_notinforce_0123456789"
	s.activate(service)
	s.publish("A post")
	s.run(`do_action('weir_sync_run');`)
	var status map[string]any
	s.json(`WeirSync\State::get('status')`, &status)
	if problem, _ := status["problem"].(string); !strings.HasPrefix(problem, "The service answered 401: ") {
		t.Errorf("the problem is %q", problem)
	}
	all, err := json.Marshal(status)
	s.must(err)
	if strings.Contains(string(all), service.token) {
		t.Errorf("the state has the token: %s", all)
	}
}
