package wordpress

import (
	"testing"
)

// failing makes the site's database fail every statement that has this text while a run is under
// way, as if the server had ended in the middle of it.
func (s *site) failing(text string) {
	s.Helper()
	s.write("wp-content/mu-plugins/failing.php", `<?php add_filter('query', function ($sql) {
		return doing_action('weir_sync_run') && str_contains($sql, '`+text+`') ? 'no statement' : $sql;
	});`)
}

// If the database fails in the middle of a run, no post is taken for one that has gone: no document
// is deleted, and no post is forgotten. The next run continues.
func TestAFailingDatabaseLosesNothing(t *testing.T) {
	for name, text := range map[string]string{
		"the posts":  "SELECT * FROM wp_posts WHERE ID IN",
		"the scan":   "SELECT ID FROM wp_posts WHERE post_type IN",
		"the queue":  "SELECT object_id, version",
		"the claim":  "sending = VALUES(sending)",
		"the result": "digest = sending",
	} {
		t.Run(name, func(t *testing.T) {
			service, s := serve(t, "600 per minute"), install(t)
			s.activate(service)
			s.publish("One")
			s.run(`run_due_events();`)
			s.publish("Two")
			s.run(`WeirSync\Items::forget(false); WeirSync\Scan::begin();
				wp_clear_scheduled_hook('weir_sync_run'); wp_schedule_single_event(time(), 'weir_sync_run');`)
			s.failing(text)
			s.run(`run_due_events();`)
			if due := s.run(`echo (int) wp_next_scheduled('weir_sync_run');`); due == "0" {
				t.Error("no run is scheduled")
			}
			for _, x := range service.received() {
				if x.method == "DELETE" {
					t.Errorf("a document of a public post is deleted: %s", x.body)
				}
			}
			if log := s.log(); log == "" {
				t.Error("nothing has failed, so the test looks in the wrong place")
			}
			s.failing("nothing of this kind")
			s.write("debug.log", "")
			s.run(`do_action('weir_sync_run');`)
			if n := len(service.documents(service.own)); n != 2 {
				t.Errorf("the service has %d of 2", n)
			}
			if rows := s.items(); len(rows) != 2 || rows["One"].Status != "sent" || rows["Two"].Status != "sent" {
				t.Errorf("the rows are %v", rows)
			}
		})
	}
}

// Tables that could not be made are made with a later request.
func TestTablesAreMadeLater(t *testing.T) {
	s := install(t)
	s.run(`add_filter('query', fn($sql) => str_contains($sql, 'CREATE TABLE') ? 'no statement' : $sql);
		activate_plugin('weir-sync/weir-sync.php');`)
	if s.log() == "" {
		t.Error("nothing has failed, so the test looks in the wrong place")
	}
	s.write("debug.log", "")
	if tables := s.run(`echo count($wpdb->get_col("SHOW TABLES LIKE '%weir\\_sync%'"));`); tables != "2" {
		t.Errorf("the site has %s of 2 tables", tables)
	}
}
