<?php
/**
 * The commands of WP-CLI.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * Keeps a Weir workspace in step with this site.
 */
final class Command {

	/** How long to wait for another run at a time, in seconds. */
	private const BUSY_WAIT = 10;

	/**
	 * Sends everything that waits. If the budget is spent, it waits for the next window.
	 *
	 * ## OPTIONS
	 *
	 * [--all]
	 * : Send all posts, also those that the service has already acknowledged.
	 *
	 * [--compare]
	 * : Compare all posts with what was sent, and send those that differ: for example after an import that
	 * bypassed WordPress.
	 *
	 * [--max-wait=<seconds>]
	 * : How long to wait for the next window at most. A longer wait ends the command, with when to come back.
	 * ---
	 * default: 7200
	 * ---
	 *
	 * ## EXAMPLES
	 *
	 *     wp weir sync
	 *     wp weir sync --all --max-wait=0
	 *
	 * @param string[] $args    None.
	 * @param array    $options The options.
	 */
	public function sync( $args, $options ): void {
		$max_wait = $options['max-wait'] ?? 7200;
		if ( ! is_numeric( $max_wait ) || $max_wait < 0 ) {
			\WP_CLI::error( '--max-wait: expected a number of seconds, 0 or more.' );
		}
		if ( ! empty( $options['all'] ) ) {
			Items::forget( false );
		}
		if ( ! empty( $options['all'] ) || ! empty( $options['compare'] ) ) {
			Scan::begin();
		}
		$sent   = 0;
		$busy   = 0;
		$report = function ( string $method, int $number ) use ( &$sent ): void {
			$sent += $number;
			\WP_CLI::log( sprintf( 'PUT' === $method ? 'stored %d documents' : 'deleted %d documents', $number ) );
		};
		while ( true ) {
			try {
				$outcome = ( new Runner( INF, $report ) )->run();
			} catch ( \RuntimeException $e ) { // The database fails.
				\WP_CLI::error( $e->getMessage() );
			}
			if ( Outcome::TIME === $outcome->kind ) {
				continue; // The settings have changed.
			}
			if ( Outcome::BUSY === $outcome->kind && $busy + self::BUSY_WAIT <= $max_wait ) { // WP-Cron may have been faster.
				\WP_CLI::log( sprintf( 'another run is under way, next try in %d s', self::BUSY_WAIT ) );
				$busy += self::BUSY_WAIT;
				sleep( self::BUSY_WAIT );
				continue;
			}
			if ( Outcome::BUDGET !== $outcome->kind ) {
				break;
			}
			$wait = max( 1, $outcome->again - time() );
			if ( $wait > $max_wait ) {
				\WP_CLI::error( sprintf( 'the budget is spent; run the command again after %s, which is longer than --max-wait allows.', wp_date( 'c', $outcome->again ) ) );
			}
			\WP_CLI::log( sprintf( 'the budget is spent, next window in %d s', $wait ) );
			sleep( $wait ); // A terminal waits here, never a page view.
		}
		if ( Outcome::DONE !== $outcome->kind ) {
			\WP_CLI::error( $outcome->problem );
		}
		$counts = Items::counts();
		$text   = sprintf( '%d documents sent or deleted; the service has %d, %d wait, %d failed.', $sent, $counts[ Items::SENT ], $counts[ Items::WAITING ], $counts[ Items::FAILED ] );
		if ( $counts[ Items::FAILED ] > 0 ) {
			foreach ( Items::errors( 20 ) as $row ) {
				\WP_CLI::warning( sprintf( 'post %d: %s', $row->object_id, $row->error ) );
			}
			\WP_CLI::error( $text );
		}
		\WP_CLI::success( $text );
	}

	/**
	 * Shows how many posts were sent, wait or failed, and what is left of the budget.
	 *
	 * @param string[] $args    None.
	 * @param array    $options None.
	 */
	public function status( $args, $options ): void {
		$progress = Progress::now();
		foreach ( array( 'sent', 'waiting', 'failed' ) as $name ) {
			\WP_CLI::log( sprintf( '%-9s %d', $name, $progress->$name ) );
		}
		$budget = Pacing::budget();
		\WP_CLI::log( sprintf( '%-9s %s', 'budget', $budget ? sprintf( '%d of %d, restored %s', $budget['remaining'], $budget['limit'], wp_date( 'c', $budget['restored'] ) ) : 'not known' ) );
		if ( '' !== $progress->problem ) {
			\WP_CLI::log( sprintf( '%-9s %s', 'problem', $progress->problem ) );
		}
	}

	/**
	 * Tries the posts again that the service has refused.
	 *
	 * @param string[] $args    None.
	 * @param array    $options None.
	 */
	public function retry( $args, $options ): void {
		Items::retry_failed();
		$this->sync( array(), array() );
	}
}
