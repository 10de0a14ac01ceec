package wordpress

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weirlimit/weir/e2e/child"
)

// A post follows what its author does with it.
func TestAPostIsSearchableWhileItIsPublic(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`
		kses_remove_filters(); // the author may write scripts
		wp_insert_post(['post_title' => 'Delivery &amp; returns', 'post_name' => 'delivery', 'post_status' => 'publish', 'post_content' =>
			"<!-- wp:paragraph --><p>Parcels take <b>two</b> to three working days.</p><!-- /wp:paragraph --><script>secret()</script>[unknown]<img alt='A blue parcel' src='x'>"]);
		run_due_events();
	`)
	got := service.documents(service.own)
	if len(got) != 1 {
		t.Fatalf("the service has %v", got)
	}
	for id, d := range got {
		want := document{id, "Delivery & returns", "http://shop.example.com/delivery/", "Parcels take two to three working days.\n[unknown] A blue parcel"}
		if d != want {
			t.Errorf("the document is %+v, want %+v", d, want)
		}
	}
	if titles := service.answers("How many working days do parcels take?"); !slices.Contains(titles, "Delivery & returns") {
		t.Errorf("a question is answered from %q", titles)
	}
	for _, step := range []struct {
		what, code string
		there      bool
	}{
		{"trashed", `wp_trash_post($id);`, false},
		{"restored", `wp_untrash_post($id); wp_publish_post($id);`, true},
		{"private", `wp_update_post(['ID' => $id, 'post_status' => 'private']);`, false},
		{"public again", `wp_update_post(['ID' => $id, 'post_status' => 'publish']);`, true},
		{"with a password", `wp_update_post(['ID' => $id, 'post_password' => 'x']);`, false},
		{"without it", `wp_update_post(['ID' => $id, 'post_password' => '']);`, true},
		{"a draft", `wp_update_post(['ID' => $id, 'post_status' => 'draft']);`, false},
		{"scheduled", `wp_update_post(['ID' => $id, 'post_status' => 'future', 'edit_date' => true, 'post_date' => '2099-01-01 00:00:00', 'post_date_gmt' => '2099-01-01 00:00:00']);`, false},
		{"published", `wp_publish_post($id);`, true},
		{"of a type that is not sent", `set_post_type($id, 'attachment'); do_action('save_post', $id, get_post($id), true);`, false},
		{"of its type again", `set_post_type($id, 'post'); do_action('save_post', $id, get_post($id), true);`, true},
		{"deleted", `wp_delete_post($id, true);`, false},
	} {
		s.run(`kses_remove_filters(); $id = (int) $wpdb->get_var("SELECT ID FROM $wpdb->posts WHERE post_name LIKE 'delivery%'");` + step.code + `run_due_events();`)
		if there := len(service.documents(service.own)) == 1; there != step.there {
			t.Errorf("the post is %s: searchable is %v", step.what, there)
		}
	}
	var left int
	s.json(`(int) $wpdb->get_var("SELECT COUNT(*) FROM {$wpdb->prefix}weir_sync_items")`, &left)
	if left != 0 {
		t.Errorf("%d rows are left of a post that was deleted", left)
	}
	for _, x := range service.received() {
		if strings.Contains(x.body, "secret") {
			t.Errorf("the script was sent: %s", x.body)
		}
	}
}

// Nothing is sent before an administrator has entered an address and a token, and agreed.
func TestNothingIsSentBeforeConsent(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.run(`activate_plugin('weir-sync/weir-sync.php');`)
	const publish = `wp_insert_post(['post_title' => 'A post', 'post_status' => 'publish']); do_action('weir_sync_run'); run_due_events();`
	s.run(publish)
	s.enter(service, false)
	s.run(publish)
	s.run(`submit_form('weir_sync_act', ['what' => 'all']); do_action('weir_sync_run');`)
	if out, err := s.command("", `weir_sync();`).Output(); err == nil {
		t.Errorf("the command sends: %s", out)
	}
	if n := len(service.received()); n != 0 {
		t.Fatalf("%d requests before consent", n)
	}
	s.enter(service, true)
	s.run(`run_due_events();`)
	if n := len(service.documents(service.own)); n != 2 {
		t.Errorf("after consent the service has %d of 2 posts", n)
	}
	s.enter(service, false)
	sent := len(service.received())
	s.run(publish)
	if n := len(service.received()); n != sent {
		t.Errorf("%d requests after the consent was withdrawn", n-sent)
	}
}

// A plugin that sends each post when it is saved, and takes a 429 for success, loses most of a
// burst. This one loses none, and no request is refused.
func TestABurstLosesNoPost(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it waits for several windows")
	}
	const posts = 131
	service, s := serve(t, "6 per 2 seconds"), install(t)
	s.activate(service)
	s.run(fmt.Sprintf(`
		for ($n = 1; $n <= %d; $n++) {
			wp_insert_post(['post_title' => "Post $n", 'post_status' => 'publish', 'post_content' => "Text $n"]);
			run_due_events(); // as page views do
		}`, posts))
	s.sync()
	if n := len(service.documents(service.own)); n != posts {
		t.Errorf("the service has %d of %d posts", n, posts)
	}
	if n := service.refused(); n != 0 {
		t.Errorf("%d requests were refused", n)
	}
}

// A run that is killed while a batch is under way is continued by the next one: every post arrives,
// and only that batch is sent twice.
func TestTheFirstSyncContinuesAfterItsProcessIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it sends 10,000 posts")
	}
	const posts = 10_000
	service, s := serve(t, "60 per minute"), install(t)
	s.run(fmt.Sprintf(`many_posts(%d);`, posts))
	s.activate(service)

	reached, killed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	service.replaceAnswers(func(_ http.ResponseWriter, r *http.Request) bool {
		if n := len(service.received()); n == 3 { // the status, two batches, and this
			once.Do(func() { close(reached) })
			<-killed
		}
		return false
	})
	runner, err := child.Start(s.command("", `run_due_events();`), s.dir+"/runner.log", syscall.SIGKILL)
	s.must(err)
	s.must(runner.Await("the third batch is sent", func() bool {
		select {
		case <-reached:
			return true
		default:
			return false
		}
	}))
	runner.Kill()
	close(killed)
	service.replaceAnswers(nil)

	var next int64
	s.json(`wp_next_scheduled('weir_sync_run')`, &next)
	if next == 0 || next > time.Now().Unix()+150 {
		t.Errorf("after the kill, the next run is scheduled for %d", next)
	}
	s.run(`(new WeirSync\Runner(10))->run();`) // the lock is still held
	if n := len(service.received()); n > 4 {
		t.Errorf("%d requests while the killed run holds the lock", n)
	}
	s.passLock()
	start := time.Now()
	s.sync()
	t.Logf("the rest in %v", time.Since(start))

	documents := service.documents(service.own)
	if len(documents) != posts {
		t.Errorf("the service has %d of %d posts", len(documents), posts)
	}
	sent := map[string]int{}
	for _, x := range service.received() {
		if x.method != http.MethodPut {
			continue
		}
		var batch struct{ Items []struct{ ID string } }
		s.must(json.Unmarshal([]byte(x.body), &batch))
		for _, item := range batch.Items {
			sent[item.ID]++
		}
	}
	twice := 0
	for id, n := range sent {
		if n > 2 {
			t.Errorf("%s was sent %d times", id, n)
		}
		if n == 2 {
			twice++
		}
	}
	if twice > 500 {
		t.Errorf("%d posts were sent twice, more than a batch", twice)
	}
	if n := service.refused(); n != 0 {
		t.Errorf("%d requests were refused", n)
	}
}

// passLock lets the lock of a killed run expire.
func (s *site) passLock() {
	s.Helper()
	s.run(`WeirSync\State::set('lock', ['until' => 0]);`)
}

// A request of a page never waits: it writes a row and an event. If there is no budget, the run
// that follows sends nothing either, and the next one is scheduled for Reset. A wait for the next
// window would take an hour.
func TestAPageViewNeverWaits(t *testing.T) {
	service, s := serve(t, "3 per hour"), install(t)
	s.activate(service)
	const publish = `wp_insert_post(['post_title' => 'A post', 'post_status' => 'publish']);`
	for range 3 {
		s.run(publish + `run_due_events();`)
	}
	sent := len(service.received())
	s.run(publish)
	if n := len(service.received()); n != sent {
		t.Errorf("a request that saves a post has sent %d", n-sent)
	}
	s.run(`run_due_events();`)
	s.run(`do_action('weir_sync_run');`)
	if n := len(service.received()); n != sent || service.refused() > 0 {
		t.Errorf("without budget %d requests were sent, and %d refused", n-sent, service.refused())
	}
	var plan struct{ Next, Restored, Now int64 }
	s.json(`['Next' => wp_next_scheduled('weir_sync_run'), 'Restored' => WeirSync\Pacing::budget()['restored'], 'Now' => time()]`, &plan)
	if plan.Next < plan.Restored-1 || plan.Next > plan.Restored+4 || plan.Restored < plan.Now+3000 {
		t.Errorf("the next run is %d s from now, and the budget is restored in %d s", plan.Next-plan.Now, plan.Restored-plan.Now)
	}
	out, err := s.command("", `weir_sync(['max-wait' => '5']);`).Output()
	if err == nil || !strings.Contains(string(out), "the budget is spent; run the command again after") {
		t.Errorf("the command: %v, %s", err, out)
	}
}

// A post that is saved while its batch is under way is sent once more, as it is now.
func TestAChangeWhileABatchIsUnderWayIsNotLost(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`wp_insert_post(['post_title' => 'Before', 'post_name' => 'a', 'post_status' => 'publish']);`)
	var once sync.Once
	service.replaceAnswers(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			once.Do(func() {
				s.run(`wp_update_post(['ID' => get_page_by_path('a', OBJECT, 'post')->ID, 'post_title' => 'After']);`)
			})
		}
		return false
	})
	s.run(`do_action('weir_sync_run');`)
	s.run(`run_due_events();`)
	titles := []string{}
	for _, d := range service.documents(service.own) {
		titles = append(titles, d.Title)
	}
	if !slices.Equal(titles, []string{"After"}) {
		t.Errorf("the service has %q", titles)
	}
}

// A second run does nothing while one is under way.
func TestThereIsOneRunAtATime(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`wp_insert_post(['post_title' => 'A post', 'post_status' => 'publish']);`)
	kinds := make(chan string, 10)
	service.replaceAnswers(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			kinds <- s.run(`echo (new WeirSync\Runner(10))->run()->kind;`)
		}
		return false
	})
	s.run(`do_action('weir_sync_run');`)
	if len(kinds) != 1 {
		t.Fatalf("%d runs while one is under way", len(kinds))
	}
	if kind := <-kinds; kind != "busy" {
		t.Errorf("the second run: %q", kind)
	}
}

// A scheduled run is bounded in time, and makes progress however slow the site is.
func TestAScheduledRunEndsInTime(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`run_due_events();`)
	s.publish("One", "Two", "Three")
	s.write("wp-content/mu-plugins/slow.php", `<?php add_filter('weir_sync_seconds', '__return_zero');`)
	for n := 1; n <= 3; n++ {
		var next int64
		s.run(`run_due_events();`)
		s.json(`wp_next_scheduled('weir_sync_run')`, &next)
		if got := len(service.documents(service.own)); got != n || (next == 0 || next > time.Now().Unix()) && n < 3 {
			t.Errorf("after run %d the service has %d documents, and the next run is at %d", n, got, next)
		}
	}
}

// Batches are as large as the service accepts, and no larger than that, in little memory.
func TestBatchesAreAsLargeAsTheServiceAccepts(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	// Posts of 200 kB.
	s.run(`many_posts(110); $wpdb->query("UPDATE $wpdb->posts SET post_content = CONCAT(post_title, ' ', REPEAT('word ', 40000))");`)
	s.activate(service)
	s.run(`ini_set('memory_limit', '128M'); weir_sync();`)
	if n := len(service.documents(service.own)); n != 110 {
		t.Errorf("the service has %d of 110", n)
	}
	var sizes []int
	for _, x := range service.received() {
		if x.method == http.MethodPut {
			sizes = append(sizes, len(x.body))
		}
	}
	for i, size := range sizes {
		if size > 8<<20 || i < len(sizes)-1 && size < 7<<20 {
			t.Errorf("the batches have %d bytes", sizes)
		}
	}
}

// A post is read from the database, past an object cache that has it as it was.
func TestAStaleObjectCacheIsNotSent(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.publish("Before")
	s.run(`
		$post = get_posts()[0];
		get_post($post->ID); // is in the cache now
		$wpdb->update($wpdb->posts, ['post_title' => 'After'], ['ID' => $post->ID]);
		do_action('weir_sync_run');`)
	for _, d := range service.documents(service.own) {
		if d.Title != "After" {
			t.Errorf("the service has %q", d.Title)
		}
	}
}

// Posts that several processes save while a scan and a run are under way are all noticed.
func TestConcurrentSavesAreAllNoticed(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.run(`many_posts(3000);`)
	s.activate(service)
	const processes, each = 4, 40
	done := make(chan error)
	start := func(code string) {
		cmd := s.command("", code)
		go func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			done <- err
		}()
	}
	for p := range processes {
		start(fmt.Sprintf(`for ($n = 0; $n < %d; $n++) { wp_insert_post(['post_title' => "By %d", 'post_status' => 'publish']); }`, each, p))
	}
	start(`for ($n = 0; $n < 5; $n++) { WeirSync\Scan::begin(); weir_sync(); }`)
	for range processes + 1 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	s.sync()
	if n := len(service.documents(service.own)); n != 3000+processes*each {
		t.Errorf("the service has %d of %d", n, 3000+processes*each)
	}
}

// A run that compares posts with what was sent is bounded in time as one that sends is.
func TestAComparisonEndsInTime(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.publish("One", "Two", "Three")
	s.run(`run_due_events();`)
	s.write("wp-content/mu-plugins/slow.php", `<?php add_filter('weir_sync_seconds', '__return_zero');`)
	s.run(`WeirSync\Scan::begin(); while (WeirSync\Scan::step(WeirSync\Settings::load())); WeirSync\Schedule::at(time());`)
	for n := 1; n <= 3; n++ {
		sent := 0
		s.run(`run_due_events();`)
		for _, row := range s.items() {
			if row.Status == "sent" {
				sent++
			}
		}
		if sent != n {
			t.Errorf("after run %d, %d of 3 posts are compared, want %d", n, sent, n)
		}
	}
}

// A run whose lock has expired, and that another run has taken, sends nothing more.
func TestARunWithoutItsLockSendsNothing(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`run_due_events();`)
	s.publish("One", "Two", "Three", "Four")
	var once sync.Once
	service.replaceAnswers(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		once.Do(func() { s.run(`WeirSync\State::set('lock', ['owner' => 'another', 'until' => time() + 100]);`) })
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return true
	})
	was := len(service.received())
	s.run(`do_action('weir_sync_run');`)
	if n := len(service.received()) - was; n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// Posts of several megabytes are sent as the text of their beginning, without what is no text.
func TestLargePostsAreCut(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.publish("Script", "Text", "Open")
	s.run(`foreach (['Script' => '<p>One<!-- <p> --> two</p><SCRIPT>' . str_repeat('var a = 1; ', 200000) . '</script ><p>Three <img src="a" alt="four" title="five"></p>',
			'Text' => str_repeat("\u{1F600}word ", 600000),
			'Open' => 'Begin <p>' . str_repeat('<img alt="x', 2000) . str_repeat('<script ', 2000) . str_repeat('<!--', 2000)] as $title => $text)
		$wpdb->update($wpdb->posts, ['post_content' => $text], ['post_title' => $title]);
		remove_all_filters('the_content');
		do_action('weir_sync_run');`)
	got := map[string]string{}
	for _, d := range service.documents(service.own) {
		got[d.Title] = d.Text
	}
	if got["Script"] != "One two\nThree four" {
		t.Errorf("the text is %.100q", got["Script"])
	}
	if text := got["Text"]; len(text) > 256<<10 || len(text) < 256<<10-10 || !strings.HasPrefix(text, "\U0001F600word ") || !utf8.ValidString(text) {
		t.Errorf("the text has %d bytes", len(text))
	}
	if !strings.HasPrefix(got["Open"], "Begin") {
		t.Errorf("the text is %.100q", got["Open"])
	}
}
