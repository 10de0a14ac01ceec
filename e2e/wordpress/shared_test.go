package wordpress

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A refusal is what a plugin gets for whose request there is no budget.
type refusal struct {
	Code, Message string
	Data          struct {
		RetryAt    int64 `json:"retry_at"`
		RetryAfter int64 `json:"retry_after"`
		Status     int
	}
	Now int64
}

// another returns PHP in which another plugin asks the service for its status, and prints the
// status of the answer or the error.
func another(service *service, token string) string {
	return fmt.Sprintf(`
		$answer = wp_remote_get('%s/v1/wp/status', ['headers' => ['Authorization' => 'Bearer %s']]);
		echo json_encode(is_wp_error($answer)
			? ['Code' => $answer->get_error_code(), 'Message' => $answer->get_error_message(), 'Data' => $answer->get_error_data(), 'Now' => time()]
			: ['Code' => (string) wp_remote_retrieve_response_code($answer)]);`, service.url, token)
}

// Another plugin's requests with the same token are counted, and if there is no budget they are not
// sent: the plugin gets an error with the time. Requests with another token, to other paths and to
// other hosts are left alone.
func TestAnotherPluginSharesTheBudget(t *testing.T) {
	service, s := serve(t, "20 per hour"), install(t)
	s.activate(service)
	s.run(`do_action('weir_sync_run');`)
	var last refusal
	ok := 0
	for range 25 {
		last = refusal{}
		s.must(json.Unmarshal([]byte(s.run(another(service, service.token))), &last))
		if last.Code == "200" {
			ok++
		}
	}
	if n := len(service.received()); ok != n-1 || n > 20 || n < 17 || service.refused() != 0 {
		t.Errorf("%d answers, %d requests, %d refused", ok, n, service.refused())
	}
	if d := last.Data; last.Code != "weir_rate_limited" || d.Status != 429 || d.RetryAfter < 3000 || d.RetryAfter > 3600 || d.RetryAt-last.Now != d.RetryAfter {
		t.Errorf("the error is %+v", last)
	}
	if !strings.Contains(last.Message, "There is no budget for a request to 127.0.0.1:") {
		t.Errorf("the message is %q", last.Message)
	}
	// The plugin's own run knows of them.
	sent := len(service.received())
	s.publish("A post")
	s.run(`do_action('weir_sync_run');`)
	if n := len(service.received()); n != sent {
		t.Errorf("the run sends %d requests although others have spent the budget", n-sent)
	}
	if out := s.run(another(service, service.own)); out != `{"Code":"200"}` {
		t.Errorf("with another token: %s", out)
	}
	if out := s.run(fmt.Sprintf(`echo wp_remote_retrieve_response_code(wp_remote_get('%s/docs'));`, service.url)); out != "200" {
		t.Errorf("another path: %s", out)
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "other") }))
	t.Cleanup(other.Close)
	if out := s.run(fmt.Sprintf(`echo wp_remote_retrieve_body(wp_remote_get('%s/v1/wp/status', ['headers' => ['Authorization' => 'Bearer %s']]));`, other.URL, service.token)); out != "other" {
		t.Errorf("another host: %s", out)
	}
}

// Requests that end without an answer do not hold a place for ever, whatever ends them.
func TestRequestsWithoutAnAnswerAreSettled(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`do_action('weir_sync_run');`)
	url := service.url + "/v1/wp/status"
	inFlight := fmt.Sprintf(`(new WeirSync\Pacer\Pacer(new WeirSync\Store()))->budget(new WeirSync\Pacer\Call('GET', '%s', ['Authorization' => 'Bearer %s']))->inFlight`, url, service.token)
	meanwhile := s.run(fmt.Sprintf(`
		$args = ['headers' => ['Authorization' => 'Bearer %s']];
		for ($n = 0; $n < 3; $n++) {
			wp_remote_get('%[2]s', $args + ['blocking' => false]);
			wp_remote_get('%[2]s', $args + ['stream' => true, 'filename' => '/nowhere/file']);
			add_filter('block_local_requests', '__return_true');
			add_filter('pre_http_request', $answer = fn() => ['response' => ['code' => 200]], 5);
			wp_remote_get('%[2]s', $args);
			remove_filter('pre_http_request', $answer, 5);
			add_action('http_api_curl', $throw = function () { throw new Exception('stopped'); });
			try { wp_remote_get('%[2]s', $args); } catch (Exception $e) {}
			remove_action('http_api_curl', $throw);
		}
		echo %[3]s;`, service.token, url, inFlight))
	if meanwhile != "3" {
		t.Errorf("%s requests are in flight, want the three whose end WordPress does not report", meanwhile)
	}
	var flying int
	if s.json(inFlight, &flying); flying != 0 {
		t.Errorf("after their process %d requests are still in flight", flying)
	}
}

// Processes of a site share the budget by its database: together they use it and are not refused.
func TestManyProcessesShareOneBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it waits for several windows")
	}
	const limit, processes = 20, 8
	service, s := serve(t, fmt.Sprintf("%d per 2 seconds", limit)), install(t)
	s.activate(service)
	s.run(`do_action('weir_sync_run');`)
	before := len(service.received())
	work := s.command("", fmt.Sprintf(`
		for ($done = 0; $done < 10; ) {
			$answer = wp_remote_get('%s/v1/wp/status', ['headers' => ['Authorization' => 'Bearer %s']]);
			if (!is_wp_error($answer)) { $done += 200 === wp_remote_retrieve_response_code($answer) ? 1 : 0; continue; }
			usleep(50000); // a command may wait
		}`, service.url, service.token))
	done := make(chan error)
	for range processes {
		cmd := s.command("", "")
		cmd.Args[len(cmd.Args)-1] = work.Args[len(work.Args)-1]
		go func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			done <- err
		}()
	}
	for range processes {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := len(service.received()) - before; n != processes*10 || service.refused() != 0 {
		t.Errorf("%d requests for %d answers, %d refused", n, processes*10, service.refused())
	}
}

// A 429 that comes nevertheless tells when to come back, and the run does.
func TestA429IsTakenForWhatItIs(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.publish("A post")
	service.replaceAnswers(func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Retry-After", "40")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	s.run(`do_action('weir_sync_run');`)
	var plan struct {
		Next    int64
		Outcome string
	}
	s.json(`['Next' => wp_next_scheduled('weir_sync_run') - time()] + ['Outcome' => WeirSync\State::get('status')['outcome']]`, &plan)
	if plan.Outcome != "budget" || plan.Next < 35 || plan.Next > 45 {
		t.Errorf("after a 429 with Retry-After: 40: %+v", plan)
	}
	if row := s.items()["A post"]; row.Status != "waiting" || row.Attempts != 0 {
		t.Errorf("the post: %+v", row)
	}
}

// If the table of budgets is gone, requests are sent as if there were no plugin.
func TestWithoutItsTableThePluginIsNotInTheWay(t *testing.T) {
	service, s := serve(t, "600 per minute"), install(t)
	s.activate(service)
	s.run(`$wpdb->query("DROP TABLE {$wpdb->prefix}weir_sync_state");`)
	for range 2 {
		if out := s.run(another(service, service.token)); out != `{"Code":"200"}` {
			t.Errorf("another plugin's request: %s", out)
		}
	}
}
