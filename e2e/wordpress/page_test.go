package wordpress

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/e2e/child"
)

// A visitor is a client of the site that is logged in.
type visitor struct {
	*site
	client *http.Client
}

// logIn logs in as a user.
func (s *site) logIn(user int) *visitor {
	s.Helper()
	jar, err := cookiejar.New(nil)
	s.must(err)
	v := &visitor{s, &http.Client{Jar: jar, Timeout: child.Patience}}
	v.get(fmt.Sprintf("/?login_as=%d&then=%s", user, url.QueryEscape(s.url+"/wp-admin/profile.php")))
	return v
}

func (v *visitor) get(path string) (status int, page string) {
	v.Helper()
	answer, err := v.client.Get(v.url + path)
	v.must(err)
	return v.read(answer)
}

func (v *visitor) post(path string, form url.Values) (status int, page string) {
	v.Helper()
	answer, err := v.client.PostForm(v.url+path, form)
	v.must(err)
	return v.read(answer)
}

func (v *visitor) read(answer *http.Response) (status int, page string) {
	v.Helper()
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	v.must(err)
	return answer.StatusCode, string(text)
}

const settingsPage = "/wp-admin/options-general.php?page=weir-sync"

// An administrator enters the settings on the page, and sees the progress there. The token is never
// printed, and nobody else can do any of it.
func TestTheSettingsPage(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.run(`activate_plugin('weir-sync/weir-sync.php'); wp_create_user('reader', 'secret', 'reader@example.com');`)
	s.publish("One", "Two")
	s.listen()
	admin, reader := s.logIn(1), s.logIn(2)

	_, page := admin.get(settingsPage)
	nonce := func(action string) string {
		t.Helper()
		form := regexp.MustCompile(`(?s)name="action" value="` + action + `">.*?name="_wpnonce" value="(\w+)"`).FindStringSubmatch(page)
		if form == nil {
			t.Fatalf("the page has no form %s:\n%s", action, page)
		}
		return form[1]
	}
	form := url.Values{"action": {"weir_sync_save"}, "url": {service.url + "/"}, "token": {service.token}, "types[]": {"post", "nonsense"}, "consent": {"1"}}
	if status, _ := admin.post("/wp-admin/admin-post.php", form); status != http.StatusForbidden {
		t.Errorf("without a nonce: %d", status)
	}
	form.Set("_wpnonce", nonce("weir_sync_save"))
	for _, who := range []*visitor{reader, {s, http.DefaultClient}} {
		if who.post("/wp-admin/admin-post.php", form); s.run(`echo get_option('weir_sync_token', 'none');`) != "none" {
			t.Fatal("someone else has stored a token")
		}
		if _, seen := who.get(settingsPage); strings.Contains(seen, "weir-sync-url") {
			t.Error("someone else sees the page")
		}
	}
	if _, page = admin.post("/wp-admin/admin-post.php", form); !strings.Contains(page, "The settings are saved.") {
		t.Fatalf("after saving:\n%s", page)
	}
	s.run(`run_due_events();`)
	if _, page = admin.get(settingsPage); !strings.Contains(page, "<strong>2</strong> sent") || !strings.Contains(page, "requests left") || !strings.Contains(page, "Everything is in step.") {
		t.Errorf("the page after the first run:\n%s", page)
	}
	if strings.Contains(page, service.token) {
		t.Error("the page has the token")
	}
	if loaded := s.run(`echo (int) isset(wp_load_alloptions()['weir_sync_token']);`); loaded != "0" {
		t.Error("the token is loaded with every page")
	}
	if stored := s.run(`echo json_encode(get_option('weir_sync_settings')['types']);`); stored != `["post"]` {
		t.Errorf("the types are %s", stored)
	}

	// The address: https, or this machine.
	for _, address := range []string{"http://example.com", "https://u:p@example.com", "https://example.com/?q=1", "ftp://example.com", "javascript:alert(1)", "x"} {
		form.Set("url", address)
		if _, page := admin.post("/wp-admin/admin-post.php", form); !strings.Contains(page, "This is not an address that can be used") {
			t.Errorf("the address %s is taken", address)
		}
	}
	for address, want := range map[string]string{"https://api.example.com/v1/wp/": "https://api.example.com", " https://example.com/weir/ ": "https://example.com/weir"} {
		form.Set("url", address)
		form.Del("consent")
		admin.post("/wp-admin/admin-post.php", form)
		if got := s.run(`echo WeirSync\Settings::load()->url;`); got != want {
			t.Errorf("%q is stored as %q", address, got)
		}
	}

	// What others have written is text.
	s.enter(service, true)
	s.run(`foreach (get_posts(['post_title' => 'One']) as $p) WeirSync\Items::attempt($p->ID, 0, '<script>alert(1)</script>');
		$wpdb->query("UPDATE $wpdb->posts SET post_title = '<script>alert(2)</script>'");
		WeirSync\State::set('status', ['outcome' => 'error', 'problem' => '<script>alert(3)</script>']);`)
	if _, page = admin.get(settingsPage); strings.Contains(page, "<script>alert") || strings.Count(page, "&lt;script&gt;alert") < 3 {
		t.Errorf("markup of others is in the page:\n%s", page)
	}
	// The script's part.
	fresh := regexp.MustCompile(`data-nonce="(\w+)"`).FindStringSubmatch(page)
	if fresh == nil {
		t.Fatal("the page has no nonce for its script")
	}
	const ajax = "/wp-admin/admin-ajax.php?action=weir_sync_progress&_ajax_nonce="
	if status, answer := admin.get(ajax + fresh[1]); status != http.StatusOK || !strings.Contains(answer, "weir-sync-bar") {
		t.Errorf("the progress: %d %s", status, answer)
	}
	for _, who := range []*visitor{reader, {s, http.DefaultClient}} {
		if status, answer := who.get(ajax + fresh[1]); strings.Contains(answer, "weir-sync-bar") {
			t.Errorf("someone else gets the progress: %d", status)
		}
	}
	if status, _ := admin.get(ajax + "0"); status != http.StatusForbidden {
		t.Errorf("the progress without a nonce: %d", status)
	}
}

// chromium opens an address in a browser of its own and returns the document after its scripts have
// run. If picture is not empty, it is written there.
func chromium(t *testing.T, address, picture string) (dom string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*child.Patience)
	defer cancel()
	args := []string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--no-proxy-server", "--user-data-dir=" + t.TempDir(), "--window-size=1200,1150", "--virtual-time-budget=6000"}
	if picture != "" {
		args = append(args, "--screenshot="+picture)
	} else {
		args = append(args, "--dump-dom")
	}
	cmd := exec.CommandContext(ctx, "chromium", append(args, address)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("chromium: %v\n%s", err, out)
	}
	return string(out)
}

// In a browser the page shows the figures that its script asks for. WEIR_WP_PICTURES is a directory
// for pictures of it, in English and right to left.
func TestTheSettingsPageInABrowser(t *testing.T) {
	service, s := serve(t, "60 per minute"), install(t)
	s.run(`many_posts(700);`)
	s.activate(service)
	s.publish("An offer", "Bad")
	s.run(`do_action('weir_sync_run');`)
	s.run(`
		$wpdb->query("UPDATE {$wpdb->prefix}weir_sync_items SET status = 'waiting' WHERE object_id % 4 = 0");
		foreach (get_posts(['title' => 'Bad', 'post_type' => 'post']) as $p) $wpdb->update("{$wpdb->prefix}weir_sync_items", ['status' => 'failed', 'error' => 'field "url" is "ftp://example.com": expected an absolute http or https URL'], ['object_id' => $p->ID]);
		WeirSync\Schedule::at(time() + 40);`)
	s.listen()
	page := s.url + "/?login_as=1"
	// What the script gets replaces what the page had.
	s.write("wp-content/mu-plugins/asked.php", `<?php add_action('wp_ajax_weir_sync_progress', fn() => $GLOBALS['wpdb']->query("UPDATE {$GLOBALS['wpdb']->prefix}weir_sync_items SET status = 'sent' WHERE status = 'waiting'"), 1);`)
	if dom := chromium(t, page, ""); !strings.Contains(dom, "<strong>701</strong> sent") || !strings.Contains(dom, "<strong>0</strong> waiting") || !strings.Contains(dom, "expected an absolute http") {
		t.Errorf("the document is\n%s", dom)
	}
	s.write("wp-content/mu-plugins/asked.php", "<?php")
	s.run(`$wpdb->query("UPDATE {$wpdb->prefix}weir_sync_items SET status = 'waiting' WHERE object_id % 4 = 0 AND error IS NULL");`)
	if dir := os.Getenv("WEIR_WP_PICTURES"); dir != "" {
		chromium(t, page, filepath.Join(dir, "page.png"))
		s.write("wp-content/mu-plugins/arabic.php", `<?php $GLOBALS['text_direction'] = 'rtl'; add_filter('plugin_locale', fn() => 'ar');`)
		chromium(t, page, filepath.Join(dir, "page-ar.png"))
	}
}

// The page is in the languages of the 429, for every country that speaks one of them.
func TestThePageSpeaksTheLanguagesOfThe429(t *testing.T) {
	s := install(t)
	s.run(`activate_plugin('weir-sync/weir-sync.php');`)
	var texts map[string]string
	s.must(json.Unmarshal([]byte(s.run(`
		foreach (json_decode(stream_get_contents(STDIN)) as $locale) {
			unload_textdomain('weir-sync');
			remove_all_filters('plugin_locale');
			add_filter('plugin_locale', fn() => $locale);
			WeirSync\Plugin::init();
			$texts[$locale] = __('What is sent', 'weir-sync');
		}
		echo json_encode($texts);`, []string{"de_DE", "de_AT", "de_DE_formal", "es_ES", "es_MX", "fr_FR", "it_IT", "ja", "nl_NL", "pl_PL", "pt_BR", "pt_PT", "tr_TR", "uk", "zh_CN", "ar", "ary", "en_GB", "sv_SE"})), &texts))
	want := map[string]string{
		"de_DE": "Was gesendet wird", "de_AT": "Was gesendet wird", "de_DE_formal": "Was gesendet wird", "es_ES": "Qué se envía", "es_MX": "Qué se envía",
		"fr_FR": "Ce qui est envoyé", "it_IT": "Che cosa viene inviato", "ja": "送信される内容", "nl_NL": "Wat er wordt verstuurd", "pl_PL": "Co jest wysyłane",
		"pt_BR": "O que é enviado", "pt_PT": "O que é enviado", "tr_TR": "Neler gönderilir", "uk": "Що надсилається", "zh_CN": "发送的内容", "ar": "ما الذي يُرسل",
		"ary": "What is sent", "en_GB": "What is sent", "sv_SE": "What is sent",
	}
	for locale, text := range want {
		if texts[locale] != text {
			t.Errorf("%s: %q, want %q", locale, texts[locale], text)
		}
	}
}
