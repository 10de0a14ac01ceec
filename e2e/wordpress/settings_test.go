package wordpress

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Settings that change while a run is under way count from its next batch: what is not agreed to
// any more is not sent, and what is chosen is.
func TestSettingsCountInTheMiddleOfARun(t *testing.T) {
	for _, test := range []struct {
		name   string
		change string
		after  []string // the titles that the service has
	}{
		{"consent", `WeirSync\Settings::save(WeirSync\Settings::load()->url, ['post'], 0);`, []string{"One"}},
		{"another type", `submit_form('weir_sync_save', ['url' => WeirSync\Settings::load()->url, 'types' => ['post', 'page'], 'consent' => '1']);`, []string{"A page", "One", "Three", "Two"}},
		{"no type", `submit_form('weir_sync_save', ['url' => WeirSync\Settings::load()->url, 'consent' => '1']);`, []string{}},
		{"fewer types", `submit_form('weir_sync_save', ['url' => WeirSync\Settings::load()->url, 'types' => ['page'], 'consent' => '1']);`, []string{"A page"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			service, s := serve(t, "600 per minute"), install(t)
			s.activate(service)
			s.run(`WeirSync\Settings::save(WeirSync\Settings::load()->url, ['post'], time()); run_due_events();`)
			s.run(`wp_insert_post(['post_type' => 'page', 'post_title' => 'A page', 'post_status' => 'publish']);`)
			s.publish("One", "Two", "Three")
			s.run(`WeirSync\State::set('status', ['max_items' => 1]);`)
			var once sync.Once
			service.replaceAnswers(func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPut {
					once.Do(func() { s.run(test.change) })
				}
				return false
			})
			s.run(`(new WeirSync\Runner(INF))->run();`) // as the command does
			service.replaceAnswers(nil)
			s.run(`run_due_events();`)
			titles := []string{}
			for _, d := range service.documents(service.own) {
				titles = append(titles, d.Title)
			}
			slices.Sort(titles)
			if !slices.Equal(titles, test.after) {
				t.Errorf("the service has %q, want %q", titles, test.after)
			}
		})
	}
}

// The plugin is deleted while a run is under way: that leaves nothing, too.
func TestUninstallInTheMiddleOfARun(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.publish("Zero")
	before := s.inventory()
	s.activate(service)
	s.publish("One", "Two")
	var once sync.Once
	service.replaceAnswers(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			once.Do(func() {
				s.run(remove)
				s.run(uninstall)
			})
		}
		return false
	})
	s.run(`do_action('weir_sync_run');`)
	if n := len(service.received()); n != 2 {
		t.Errorf("%d requests, want the status and one batch", n)
	}
	s.wantSame(before)
	s.write("debug.log", "") // the tables were missing
}

// A token that was stored for one server is not sent to another one that is entered later.
func TestATokenIsForTheServerItWasEnteredFor(t *testing.T) {
	service, another, s := serve(t, "600 per minute"), serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`run_due_events();`)
	s.publish("One")
	form := map[string]any{"url": another.url, "token": "", "types": []string{"post"}, "consent": "1"}
	notice := s.run(`submit_form('weir_sync_save', json_decode(stream_get_contents(STDIN), true));`, form)
	if !strings.Contains(notice, "notice=consent") {
		t.Errorf("after saving: %s", notice)
	}
	s.run(`do_action('weir_sync_run');`)
	for _, x := range another.received() {
		t.Errorf("the other server gets %s %s with %q", x.method, x.path, x.token)
	}
	another.token = another.mint("site")
	s.enter(another, true)
	s.run(`run_due_events();`)
	if n := len(another.documents(another.own)); n != 1 {
		t.Errorf("with its own token the other server has %d of 1", n)
	}
	// On the same server it stays.
	form["url"] = another.url + "/v1/wp/"
	s.run(`submit_form('weir_sync_save', json_decode(stream_get_contents(STDIN), true));`, form)
	if stored := s.run(`echo get_option('weir_sync_token');`); stored != another.token {
		t.Error("the token is gone though the server is the same")
	}
}

// What cannot be an address or a token is refused, and changes nothing. A token is often copied
// with its scheme.
func TestWrongSettingsChangeNothing(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	const submit = `submit_form('weir_sync_save', json_decode(stream_get_contents(STDIN), true));`
	form := map[string]any{"url": "http://api.example.com", "token": "another", "types": []string{"page"}}
	state := `echo json_encode([WeirSync\Settings::load(), get_option('weir_sync_token')]);`
	before := s.run(state)
	if notice := s.run(submit, form); !strings.Contains(notice, "notice=address") {
		t.Errorf("a wrong address: %s", notice)
	}
	form = map[string]any{"url": service.url, "token": "two words", "types": []string{"page"}, "consent": "1"}
	if notice := s.run(submit, form); !strings.Contains(notice, "notice=token") {
		t.Errorf("a wrong token: %s", notice)
	}
	if after := s.run(state); after != before {
		t.Errorf("the settings were\n%s and are\n%s", before, after)
	}
	token := service.mint("site")
	form["token"] = " Bearer " + token + " "
	s.run(submit, form)
	if stored := s.run(`echo get_option('weir_sync_token');`); stored != token {
		t.Errorf("the token with its scheme is stored as %q", stored)
	}
}

// The token may come with wp-config.php after the settings were saved.
func TestATokenOfTheConfigurationBeginsTheFirstSync(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.run(`activate_plugin('weir-sync/weir-sync.php');`)
	s.publish("One", "Two")
	token := service.token
	service.token = ""
	s.enter(service, true)
	s.write("wp-content/mu-plugins/config.php", `<?php define('WEIR_SYNC_TOKEN', '`+token+`');`)
	s.run(`do_action('weir_sync_hourly'); run_due_events();`)
	if n := len(service.documents(service.own)); n != 2 {
		t.Errorf("the service has %d of 2", n)
	}
}

// The token of wp-config.php is sent to the server of WEIR_SYNC_URL alone.
func TestATokenOfTheConfigurationBelongsToItsServer(t *testing.T) {
	_, s := serve(t, "600 per minute"), install(t)
	s.run(`activate_plugin('weir-sync/weir-sync.php');`)
	s.write("wp-content/mu-plugins/config.php", `<?php define('WEIR_SYNC_TOKEN', 'secret'); define('WEIR_SYNC_URL', 'https://api.example.com');`)
	for address, want := range map[string]string{
		"https://api.example.com": "secret", "https://API.example.com:443/weir": "secret", "https://other.example.com": "", "http://api.example.com": "",
	} {
		if got := s.run(`WeirSync\Settings::save('` + address + `', ['post'], 1); echo WeirSync\Settings::load()->token();`); got != want {
			t.Errorf("to %s the plugin sends the token %q, expected %q", address, got, want)
		}
	}
}

// A scan continues even if WP-Cron has lost its event, and nothing waits beside it.
func TestAScanContinuesWithoutItsEvent(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`run_due_events(); many_posts(2); WeirSync\Scan::begin();`)
	s.run(`wp_clear_scheduled_hook('weir_sync_run'); do_action('weir_sync_hourly'); run_due_events();`)
	if n := len(service.documents(service.own)); n != 2 {
		t.Errorf("the service has %d of 2", n)
	}
}

// A page without pages below it changes no address but its own.
func TestAPageWithoutChildrenBeginsNoScan(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`run_due_events();`)
	s.run(`$id = wp_insert_post(['post_type' => 'page', 'post_title' => 'A page', 'post_status' => 'draft']);
		wp_update_post(['ID' => $id, 'post_name' => 'a', 'post_status' => 'publish']);
		wp_update_post(['ID' => $id, 'post_name' => 'b']);`)
	if state := s.run(`echo json_encode(WeirSync\State::get('scan'));`); state != "[]" {
		t.Errorf("a scan is under way: %s", state)
	}
	s.run(`run_due_events();`)
	if n := len(service.documents(service.own)); n != 1 {
		t.Errorf("the service has %d of 1", n)
	}
}

// During an outage, posts that are saved do not shorten the pause. The buttons and the command try
// at once.
func TestSavedPostsDoNotShortenAPause(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`run_due_events();`)
	down := func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	service.replaceAnswers(down)
	s.publish("One")
	s.run(`run_due_events();`)
	was := len(service.received())
	for _, title := range []string{"Two", "Three"} {
		s.publish(title)
		s.run(`run_due_events();`)
	}
	if n := len(service.received()) - was; n != 0 {
		t.Errorf("%d requests in the pause", n)
	}
	service.replaceAnswers(nil)
	s.run(`submit_form('weir_sync_act', ['what' => 'now']);`)
	s.run(`run_due_events();`)
	if n := len(service.documents(service.own)); n != 3 {
		t.Errorf("after the button the service has %d of 3", n)
	}
	service.replaceAnswers(down)
	s.publish("Four")
	s.run(`run_due_events();`)
	service.replaceAnswers(nil)
	s.sync()
	if n := len(service.documents(service.own)); n != 4 {
		t.Errorf("after the command the service has %d of 4", n)
	}
}

// The command waits for a run that is under way, as long as --max-wait allows.
func TestTheCommandWaitsForAnotherRun(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`WeirSync\State::set('lock', ['owner' => 'another', 'until' => time() + 100]);`)
	out, err := s.command("", `weir_sync(['max-wait' => '0']);`).Output()
	if err == nil || !strings.Contains(string(out), "Error: Another run is under way.") {
		t.Errorf("%v: %s", err, out)
	}
	s.publish("One")
	output := s.run(`eval('namespace WeirSync; function sleep() { State::set("lock", ["owner" => "", "until" => 0]); }'); weir_sync();`)
	if !strings.Contains(output, "Success: 1 documents") {
		t.Errorf("after the other run has ended: %s", output)
	}
}

// Times that are not soon are shown with their date.
func TestFarTimesHaveADate(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`run_due_events(); wp_schedule_single_event(strtotime('2100-01-02 03:04:05 UTC'), 'weir_sync_run');`)
	page := s.run(`wp_set_current_user(1); require_once ABSPATH . 'wp-admin/includes/admin.php';
		if (!has_action('admin_post_weir_sync_save')) WeirSync\Page::register();
		WeirSync\Page::show();`)
	if !strings.Contains(page, "The next run begins at 2100-01-02 03:04.") {
		t.Errorf("the page:\n%s", page)
	}
}

// What a service echoes in its reasons is shown without the token, and not at any length.
func TestReasonsAreShownWithoutTheToken(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.publish("One")
	service.replaceAnswers(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintf(w, `{"error":{"items":[{"index":0,"reason":"%s %s"}]}}`, service.token, strings.Repeat("x", 70000))
		return true
	})
	s.run(`do_action('weir_sync_run');`)
	row := s.items()["One"]
	if row.Status != "failed" || strings.Contains(row.Error, service.token) || len(row.Error) > 400 || !strings.Contains(row.Error, "xxx") {
		t.Errorf("the row is %s with %d bytes: %.100s", row.Status, len(row.Error), row.Error)
	}
}
