package wordpress

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inventory returns what a database has: its tables, options, events and fields of users and posts.
const inventory = `(function () use ($wpdb) {
	wp_cache_flush();
	$all = $wpdb->get_col('SHOW TABLES');
	foreach (preg_grep('/_options$/', $all) as $table) {
		foreach ($wpdb->get_results("SELECT option_name, option_value FROM $table") as $o) {
			$all[] = "$table: $o->option_name";
			if ($o->option_name === 'cron') {
				foreach (unserialize($o->option_value) as $hooks) {
					if (is_array($hooks)) foreach ($hooks as $hook => $events) $all[] = "$table: event $hook";
				}
			}
		}
	}
	foreach (['usermeta', 'postmeta', 'sitemeta'] as $name) {
		if ($wpdb->$name) foreach ($wpdb->get_col("SELECT DISTINCT meta_key FROM {$wpdb->$name}") as $key) $all[] = "$name: $key";
	}
	return $all;
})()`

func (s *site) inventory() map[string]bool {
	s.Helper()
	var all []string
	s.json(inventory, &all)
	set := map[string]bool{}
	for _, name := range all {
		// Of WordPress: what expires, and what it remembers of plugins that were deleted.
		if !strings.Contains(name, "_transient_") && !strings.HasSuffix(name, ": recently_activated") && !strings.HasSuffix(name, ": uninstall_plugins") {
			set[name] = true
		}
	}
	return set
}

// wantSame reports what has been added since before.
func (s *site) wantSame(before map[string]bool) {
	s.Helper()
	for _, name := range slices.Sorted(maps.Keys(s.inventory())) {
		if !before[name] {
			s.Errorf("left: %s", name)
		}
	}
}

const remove = `deactivate_plugins('weir-sync/weir-sync.php');`
const uninstall = `uninstall_plugin('weir-sync/weir-sync.php');`

// Deleting the plugin leaves nothing on the site.
func TestUninstallLeavesNothing(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.publish("Zero") // WordPress remembers this and that of it
	before := s.inventory()
	s.activate(service)
	s.publish("One", "Two")
	s.run(`do_action('weir_sync_run');`)
	s.publish("Three")
	during := s.inventory()
	for _, name := range []string{"wp_weir_sync_items", "wp_weir_sync_state", "wp_options: weir_sync_token", "wp_options: event weir_sync_run", "wp_options: event weir_sync_hourly"} {
		if !during[name] {
			t.Errorf("in use it has no %s, so the test looks in the wrong place", name)
		}
	}
	s.run(remove)
	if after := s.inventory(); after["wp_options: event weir_sync_run"] || after["wp_options: event weir_sync_hourly"] || !after["wp_weir_sync_items"] {
		t.Error("deactivation removes the events, and nothing else")
	}
	s.run(uninstall)
	s.wantSame(before)
}

// On a network every site has its own settings, queue and documents, and deleting the plugin leaves
// nothing on any of them.
func TestANetworkOfSites(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.php(`define('WP_INSTALLING_NETWORK', true);`, `
		require_once ABSPATH . 'wp-admin/includes/upgrade.php';
		foreach ($wpdb->tables('ms_global') as $name => $table) $wpdb->$name = $table;
		install_network();
		populate_network(1, '127.0.0.1', 'admin@example.com', 'Network', '/', false);`)
	s.write("prepend.php", fmt.Sprintf(`<?php define('ABSPATH', '%s/'); $_SERVER += ['HTTP_HOST' => '127.0.0.1', 'REQUEST_URI' => '/', 'REMOTE_ADDR' => '127.0.0.1'];
		define('MULTISITE', true); define('SUBDOMAIN_INSTALL', false); define('DOMAIN_CURRENT_SITE', '127.0.0.1');
		define('PATH_CURRENT_SITE', '/'); define('SITE_ID_CURRENT_SITE', 1); define('BLOG_ID_CURRENT_SITE', 1);`, s.dir))
	s.run(`wp_insert_site(['domain' => '127.0.0.1', 'path' => '/two/', 'title' => 'Two', 'user_id' => 1]);
		switch_to_blog(2);
		wp_insert_post(['post_title' => 'Zero', 'post_status' => 'publish']);`)
	before := s.inventory()
	s.run(`activate_plugin('weir-sync/weir-sync.php', '', true);`)
	s.run(`wp_insert_site(['domain' => '127.0.0.1', 'path' => '/three/', 'title' => 'Three', 'user_id' => 1]);`)
	// A request to each of the two new sites makes its tables.
	const enter = `
		switch_to_blog($id);
		WeirSync\Schema::ensure();
		submit_form('weir_sync_save', json_decode(stream_get_contents(STDIN), true));
		wp_insert_post(['post_title' => "Of site $id", 'post_status' => 'publish']);
		do_action('weir_sync_run');`
	form := map[string]any{"url": service.url, "token": service.token, "types": []string{"post"}, "consent": "1"}
	for id := 2; id <= 3; id++ {
		s.run(fmt.Sprintf("$id = %d;", id)+enter, form)
	}
	got := service.documents(service.own)
	titles := []string{}
	for id, d := range got {
		if strings.HasPrefix(d.Title, "Of site") && strings.HasPrefix(id, "site-"+d.Title[len("Of site "):]+"-post-") {
			titles = append(titles, d.Title)
		}
	}
	slices.Sort(titles)
	if !slices.Equal(titles, []string{"Of site 2", "Of site 3"}) {
		t.Errorf("the service has %v", got)
	}
	if n := s.run(`echo count($wpdb->get_col("SELECT * FROM {$wpdb->base_prefix}weir_sync_items"));`); n != "0" {
		t.Errorf("the main site has %s rows of others", n)
	}
	// An administrator of one site can enter an address, so a token of wp-config.php needs one too.
	if shown := s.run(`define('WEIR_SYNC_TOKEN', 'secret'); echo (int) WeirSync\Settings::has_constant();`); shown != "0" {
		t.Error("the token of wp-config.php is sent to any address")
	}
	// What became private while the plugin was not active is found on each site.
	s.run(`deactivate_plugins('weir-sync/weir-sync.php', false, true);`)
	s.run(`foreach ([2, 3] as $id) { switch_to_blog($id); $wpdb->query("UPDATE $wpdb->posts SET post_status = 'private'"); }`)
	s.run(`activate_plugin('weir-sync/weir-sync.php', '', true);`)
	for id := 2; id <= 3; id++ {
		s.run(fmt.Sprintf(`switch_to_blog(%d); run_due_events();`, id))
	}
	if got := service.documents(service.own); len(got) != 0 {
		t.Errorf("after the posts have become private the service has %v", got)
	}
	s.run(`require_once ABSPATH . 'wp-admin/includes/ms.php'; wpmu_delete_blog(3, true);`)
	for name := range s.inventory() {
		if strings.HasPrefix(name, "wp_3_") {
			t.Errorf("left of a site that was deleted: %s", name)
		}
	}
	s.run(`deactivate_plugins('weir-sync/weir-sync.php', false, true);`)
	s.run(uninstall)
	s.wantSame(before)
}

// What changed while the plugin was not active is found when it is active again; what did not is
// not sent.
func TestActivationFindsWhatHasChanged(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.publish("Same", "Changed", "Trashed")
	s.run(`run_due_events();`)
	s.run(remove)
	s.run(`foreach (get_posts(['numberposts' => -1]) as $p) {
		if ($p->post_title === 'Changed') wp_update_post(['ID' => $p->ID, 'post_title' => 'New']);
		if ($p->post_title === 'Trashed') wp_trash_post($p->ID);
	}`)
	s.run(`activate_plugin('weir-sync/weir-sync.php'); run_due_events();`)
	sent := service.received()
	if last := sent[len(sent)-1].body; !strings.Contains(last, `"title":"New"`) || strings.Contains(last, "Same") {
		t.Errorf("the last batch is %s", last)
	}
	titles := []string{}
	for _, d := range service.documents(service.own) {
		titles = append(titles, d.Title)
	}
	slices.Sort(titles)
	if !slices.Equal(titles, []string{"New", "Same"}) {
		t.Errorf("the service has %q", titles)
	}
}

// If the address of a page changes, so do those of the pages below it; a new permalink structure
// changes all.
func TestAddressesFollowTheSite(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`
		$shop = wp_insert_post(['post_title' => 'Shop', 'post_name' => 'shop', 'post_type' => 'page', 'post_status' => 'publish']);
		wp_insert_post(['post_title' => 'Terms', 'post_name' => 'terms', 'post_type' => 'page', 'post_status' => 'publish', 'post_parent' => $shop]);
		run_due_events();`)
	url := func(title string) string {
		for _, d := range service.documents(service.own) {
			if d.Title == title {
				return d.URL
			}
		}
		return ""
	}
	if got := url("Terms"); got != "http://shop.example.com/shop/terms/" {
		t.Errorf("the page is at %s", got)
	}
	s.run(`wp_update_post(['ID' => get_page_by_path('shop')->ID, 'post_name' => 'store']);`)
	s.run(`run_due_events();`)
	if got := url("Terms"); got != "http://shop.example.com/store/terms/" {
		t.Errorf("after its parent has moved the page is at %s", got)
	}
	s.run(`update_option('home', 'https://new.example.com');`)
	s.run(`run_due_events();`)
	if got := url("Terms"); got != "https://new.example.com/store/terms/" {
		t.Errorf("after the site has moved the page is at %s", got)
	}
}

// Custom types are sent if they are chosen, and deleted from the service when they are not any
// more.
func TestCustomTypesAreSentIfTheyAreChosen(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.write("wp-content/mu-plugins/shop.php", `<?php add_action('init', function () {
		register_post_type('product', ['public' => true, 'label' => 'Products', 'supports' => ['title', 'editor', 'excerpt']]);
		register_post_type('shop_order', ['public' => false, 'label' => 'Orders']);
	});`)
	s.run(`activate_plugin('weir-sync/weir-sync.php');`)
	var types []string
	s.json(`WeirSync\Settings::load()->types`, &types)
	if !slices.Equal(types, []string{"post", "page", "product"}) {
		t.Errorf("the types are %q at first", types)
	}
	enter := func(types ...string) {
		s.run(`submit_form('weir_sync_save', json_decode(stream_get_contents(STDIN), true));`,
			map[string]any{"url": service.url, "token": service.token, "types": types, "consent": "1"})
		s.run(`run_due_events();`)
	}
	s.run(`
		wp_insert_post(['post_title' => 'Cup', 'post_excerpt' => 'Holds coffee.', 'post_content' => 'Made of clay.', 'post_type' => 'product', 'post_status' => 'publish']);
		wp_insert_post(['post_title' => 'Order of Ada', 'post_type' => 'shop_order', 'post_status' => 'publish']);
		wp_insert_post(['post_title' => 'News', 'post_status' => 'publish']);`)
	enter("post", "product", "shop_order")
	texts := map[string]string{}
	for _, d := range service.documents(service.own) {
		texts[d.Title] = d.Text
	}
	if want := map[string]string{"Cup": "Holds coffee.\nMade of clay.", "News": ""}; !maps.Equal(texts, want) {
		t.Errorf("the service has %q", texts)
	}
	enter("post")
	if got := service.documents(service.own); len(got) != 1 {
		t.Errorf("without products the service has %v", got)
	}
}

// A visitor's view of a post is sent, not that of the user who runs the command, and making it asks
// no other service.
func TestTheTextIsWhatAVisitorSees(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.write("wp-content/mu-plugins/members.php", `<?php add_shortcode('members', fn($a, $text) => is_user_logged_in() ? $text : 'For members.');`)
	s.run(`wp_insert_post(['post_title' => 'A & B "quoted" ©', 'post_status' => 'publish', 'post_content' =>
		"[members]The secret.[/members]\n\nhttps://www.youtube.com/watch?v=dQw4w9WgXcQ\n\n<h2>Head&shy;line</h2><ul><li>one</li><li>two &amp;lt;b&amp;gt;</li></ul>" . str_repeat('ä', 200000)]);`)
	s.run(`wp_set_current_user(1); do_action('weir_sync_run'); echo get_current_user_id();`)
	for _, d := range service.documents(service.own) {
		if !strings.HasPrefix(d.Text, "For members.\nhttps://www.youtube.com/watch?v=dQw4w9WgXcQ\nHead\u00adline\none\ntwo &lt;b&gt;\nää") || strings.Contains(d.Text, "secret") {
			t.Errorf("the text is %.200q", d.Text)
		}
		if n := len(d.Text); n > 256<<10 || n < 256<<10-2 {
			t.Errorf("the text has %d bytes", n)
		}
		if d.Title != `A & B "quoted" ©` {
			t.Errorf("the title is %q", d.Title)
		}
	}
	if n := len(service.documents(service.own)); n != 1 {
		t.Errorf("the service has %d documents", n)
	}
}

// The same sources make the same zip, wherever and whenever it is made.
func TestTheBuildIsReproducible(t *testing.T) {
	dir := t.TempDir()
	var zips [2][]byte
	for i, zone := range []string{"TZ=UTC", "TZ=Asia/Tokyo"} {
		name := filepath.Join(dir, fmt.Sprint(i))
		cmd := exec.Command("php", "../../clients/wordpress/build", name)
		cmd.Env = append(os.Environ(), zone)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var err error
		if zips[i], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(zips[0], zips[1]) {
		t.Error("two builds differ")
	}
}

// No class, function, constant or option of the plugin can clash with another plugin's, and no file
// does anything if it is opened by its address.
func TestEveryFileOfThePluginKeepsToItself(t *testing.T) {
	dir, err := plugin()
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".php" {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
		if !bytes.Contains(text, []byte("\nnamespace WeirSync")) && name != "uninstall.php" {
			t.Errorf("%s has no namespace of the plugin", name)
		}
		if bytes.Contains(text, []byte(`Weir\Pacer`)) {
			t.Errorf("%s names the pacer by its common namespace", name)
		}
		if out, err := exec.Command("php", path).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("opened by itself %s prints %s %v", name, out, err)
		}
		return nil
	})
	if err != nil || files < 30 {
		t.Errorf("%d files: %v", files, err)
	}
}
