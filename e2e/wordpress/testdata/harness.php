<?php
/**
 * What the tests need in a site: forms as an administrator sends them, WP-CLI's part that the plugin uses, and
 * no requests to other hosts.
 */

add_filter('pre_http_request', function ($preempt, $args, $url) {
	$host = parse_url($url, PHP_URL_HOST);
	if ($host === 'api.wordpress.org') { // updates of WordPress
		return ['headers' => [], 'body' => '', 'response' => ['code' => 404, 'message' => ''], 'cookies' => []];
	}
	if (!in_array($host, ['127.0.0.1', 'localhost'], true)) {
		error_log("the site asked $url"); // the test fails
		return new WP_Error('test', 'no');
	}
	return $preempt;
}, 10, 3);

/** Sends a form of the settings page, in this process. */
function submit_form(string $action, array $fields): void {
	wp_set_current_user(1);
	set_current_screen('options-general');
	if (!has_action("admin_post_$action")) {
		WeirSync\Page::register();
	}
	$_POST    = wp_slash($fields);
	$_REQUEST = $_POST + ['_wpnonce' => wp_create_nonce($action)];
	add_filter('wp_redirect', function ($location) {
		throw new RuntimeException($location);
	});
	try {
		do_action("admin_post_$action");
	} catch (RuntimeException $redirect) {
		echo $redirect->getMessage();
	}
}

/** Runs the plugin's scheduled events that are due, as wp-cron.php does. */
function run_due_events(): void {
	foreach (wp_get_ready_cron_jobs() as $time => $hooks) {
		foreach ($hooks as $hook => $events) {
			if (!str_starts_with($hook, 'weir_sync')) {
				continue; // WordPress would look for updates
			}
			foreach ($events as $event) {
				if ($event['schedule']) {
					wp_reschedule_event($time, $event['schedule'], $hook, $event['args']);
				}
				wp_unschedule_event($time, $hook, $event['args']);
				do_action_ref_array($hook, $event['args']);
			}
		}
	}
}

/** Runs `wp weir sync`. */
function weir_sync(array $options = []): void {
	(new WeirSync\Command())->sync([], $options);
}

/** WP-CLI's messages. */
class WP_CLI {
	public static array $commands = [];
	public static function add_command(string $name, string $class): void {
		self::$commands[$name] = $class;
	}
	public static function log(string $text): void {
		echo "$text\n";
	}
	public static function success(string $text): void {
		echo "Success: $text\n";
	}
	public static function warning(string $text): void {
		echo "Warning: $text\n";
	}
	public static function error(string $text): void {
		echo "Error: $text\n";
		exit(1);
	}
}

/** Makes posts, without the time that wp_insert_post takes. Texts have a word of their own each. */
function many_posts(int $number): void {
	global $wpdb;
	foreach (array_chunk(range(1, $number), 1000) as $part) {
		$rows = array_map(fn(int $n): string => $wpdb->prepare(
			"(1, NOW(), UTC_TIMESTAMP(), %s, %s, '', 'publish', 'closed', 'closed', %s, '', '', NOW(), UTC_TIMESTAMP(), '', 'post')",
			"<!-- wp:paragraph --><p>The text of page$n, which is about word$n.</p><!-- /wp:paragraph -->", "Page $n", "page-$n"
		), $part);
		$wpdb->query("INSERT INTO $wpdb->posts (post_author, post_date, post_date_gmt, post_content, post_title, post_excerpt, post_status, comment_status, ping_status, post_name, to_ping, pinged, post_modified, post_modified_gmt, post_content_filtered, post_type) VALUES " . implode(', ', $rows));
	}
}

// Logs a browser in as the user with this id.
add_action('init', function () {
	if (isset($_GET['login_as'])) {
		wp_set_auth_cookie((int) $_GET['login_as']);
		wp_redirect($_GET['then'] ?? admin_url('options-general.php?page=weir-sync'));
		exit;
	}
});
