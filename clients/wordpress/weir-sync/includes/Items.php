<?php
/**
 * What the service has of each post, and what is to be sent.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * A table with one row for each post that was sent or is to be sent. A row does not say whether to store
 * or to delete: the runner looks at the post when it sends, so repeated saves are one request, and the
 * last state of a post is what counts.
 *
 * A change increments a row's version. A batch claims the versions that it sends. If a post changes while
 * its batch is under way, its version is another one afterwards, and the row stays waiting.
 */
final class Items {

	public const WAITING = 'waiting';
	public const SENT    = 'sent';
	public const FAILED  = 'failed';

	/** Urgencies: rows of a scan come last, and posts that are no longer public come first. */
	public const SCANNED = 0;
	public const SAVED   = 1;
	public const HIDDEN  = 2;

	/** How often a statement is tried. */
	private const TRIES = 5;

	private const MARK = "version = version + 1, status = 'waiting', attempts = 0, not_before = 0, error = NULL";

	/**
	 * The table's name on this site.
	 */
	public static function table(): string {
		global $wpdb;
		return $wpdb->prefix . 'weir_sync_items';
	}

	/**
	 * Marks a public post as changed.
	 *
	 * @param int $id A post.
	 */
	public static function mark( int $id ): void {
		global $wpdb;
		$table = self::table();
		$mark  = self::MARK;
		self::write( $wpdb->prepare( "INSERT INTO $table (object_id, urgency, changed) VALUES (%d, %d, %d) ON DUPLICATE KEY UPDATE $mark, urgency = GREATEST(urgency, VALUES(urgency)), changed = VALUES(changed)", $id, self::SAVED, time() ) );
	}

	/**
	 * Marks a post that is not public, or that is being deleted. It returns false if the post was never
	 * sent and is not being sent: then there is nothing to do.
	 *
	 * @param int $id A post.
	 */
	public static function hide( int $id ): bool {
		global $wpdb;
		$table = self::table();
		$mark  = self::MARK;
		return 0 < self::write( $wpdb->prepare( "UPDATE $table SET $mark, urgency = %d, changed = %d WHERE object_id = %d", self::HIDDEN, time(), $id ) );
	}

	/**
	 * Marks the public posts of a range of ids.
	 *
	 * @param int      $after The ids are greater than this.
	 * @param string[] $types Post types.
	 * @param int      $limit How many posts at most.
	 * @return int The last id, or 0 if there are no more.
	 * @throws \RuntimeException If the database fails.
	 */
	public static function mark_range( int $after, array $types, int $limit ): int {
		global $wpdb;
		if ( array() === $types ) {
			return 0;
		}
		$public = self::public_posts( $types );
		$ids    = $wpdb->get_col( $wpdb->prepare( "SELECT ID FROM {$wpdb->posts} WHERE $public AND ID > %d ORDER BY ID LIMIT %d", $after, $limit ) ); // phpcs:ignore
		State::check_database();
		if ( ! $ids ) {
			return 0;
		}
		$table  = self::table();
		$mark   = self::MARK;
		$now    = time();
		$values = implode( ', ', array_map( fn( $id ): string => sprintf( '(%d, %d)', $id, $now ), $ids ) );
		self::write( "INSERT INTO $table (object_id, changed) VALUES $values ON DUPLICATE KEY UPDATE $mark" );
		return (int) end( $ids );
	}

	/**
	 * Counts the public posts with ids greater than one.
	 *
	 * @param int      $after The ids are greater than this.
	 * @param string[] $types Post types.
	 */
	public static function unmarked( int $after, array $types ): int {
		global $wpdb;
		$public = self::public_posts( $types );
		$table  = self::table();
		return (int) $wpdb->get_var( $wpdb->prepare( "SELECT COUNT(*) FROM {$wpdb->posts} LEFT JOIN $table ON object_id = ID WHERE $public AND ID > %d AND object_id IS NULL", $after ) ); // phpcs:ignore
	}

	/**
	 * The condition for posts that may be public, in SQL.
	 *
	 * @param string[] $types Post types.
	 */
	private static function public_posts( array $types ): string {
		$names = implode( ', ', array_map( fn( string $type ): string => "'" . esc_sql( $type ) . "'", $types ) );
		return "post_type IN ($names) AND post_status = 'publish' AND post_password = ''";
	}

	/**
	 * Marks all rows, so that posts are compared again with what was sent.
	 */
	public static function mark_all(): void {
		global $wpdb;
		$table = self::table();
		$mark  = self::MARK;
		self::write( "UPDATE $table SET $mark" );
	}

	/**
	 * Forgets what the service has acknowledged, so that posts are sent again even if they are the same.
	 *
	 * @param bool $elsewhere Whether the service is another one now, which has none of them.
	 */
	public static function forget( bool $elsewhere ): void {
		global $wpdb;
		$table = self::table();
		$more  = $elsewhere ? ', present = 0' : '';
		self::write( "UPDATE $table SET digest = ''$more" );
	}

	/**
	 * Returns rows that are to be sent now: first hidden posts, then saved ones, then those of a scan.
	 *
	 * @param int $limit How many rows at most.
	 * @return object[]
	 * @throws \RuntimeException If the database fails.
	 */
	public static function next( int $limit ): array {
		global $wpdb;
		$table = self::table();
		$rows  = $wpdb->get_results( $wpdb->prepare( "SELECT object_id, version, present, digest, attempts FROM $table WHERE status = 'waiting' AND not_before <= %d ORDER BY urgency DESC, object_id LIMIT %d", time(), $limit ) );
		State::check_database();
		return $rows;
	}

	/**
	 * Claims rows before they are sent. From now on the service may have them.
	 *
	 * @param array $rows    The rows.
	 * @param array $digests What is sent of each, by id; nothing for deletions.
	 */
	public static function claim( array $rows, array $digests ): void {
		global $wpdb;
		$table  = self::table();
		$values = array();
		foreach ( $rows as $row ) {
			$values[] = $wpdb->prepare( '(%d, %d, %s, 1)', $row->object_id, $row->version, $digests[ $row->object_id ] ?? '' );
		}
		$values = implode( ', ', $values );
		self::write( "INSERT INTO $table (object_id, claimed, sending, present) VALUES $values ON DUPLICATE KEY UPDATE claimed = VALUES(claimed), sending = VALUES(sending), present = 1" ); // phpcs:ignore
	}

	/**
	 * Records claimed rows that the service has stored.
	 *
	 * @param int[] $ids Their ids.
	 */
	public static function stored( array $ids ): void {
		self::update( $ids, "status = IF(version = claimed, 'sent', status), urgency = IF(version = claimed, 0, urgency), digest = sending, attempts = 0, error = NULL" );
	}

	/**
	 * Records claimed rows that the service has deleted.
	 *
	 * @param int[] $ids Their ids.
	 */
	public static function deleted( array $ids ): void {
		global $wpdb;
		self::update( $ids, "present = 0, digest = ''" );
		$table = self::table();
		$list  = self::ids( $ids );
		self::write( "DELETE FROM $table WHERE object_id IN ($list) AND version = claimed AND status = 'waiting'" ); // phpcs:ignore
	}

	/**
	 * Records a row whose post is as it was sent.
	 *
	 * @param object $row The row.
	 */
	public static function unchanged( object $row ): void {
		global $wpdb;
		$table = self::table();
		self::write( $wpdb->prepare( "UPDATE $table SET status = 'sent', urgency = 0, attempts = 0 WHERE object_id = %d AND version = %d", $row->object_id, $row->version ) );
	}

	/**
	 * Removes the row of a post that is not public and that the service does not have.
	 *
	 * @param object $row The row.
	 */
	public static function drop( object $row ): void {
		global $wpdb;
		$table = self::table();
		self::write( $wpdb->prepare( "DELETE FROM $table WHERE object_id = %d AND version = %d AND present = 0", $row->object_id, $row->version ) );
	}

	/**
	 * Records why a post cannot be sent. It is not tried again until it changes, or someone asks for it.
	 *
	 * @param int    $id      The post.
	 * @param int    $version The version that failed.
	 * @param string $reason  The reason.
	 */
	public static function fail( int $id, int $version, string $reason ): void {
		global $wpdb;
		$table = self::table();
		self::write( $wpdb->prepare( "UPDATE $table SET status = 'failed', error = %s, changed = %d WHERE object_id = %d AND version = %d", self::storable( $reason ), time(), $id, $version ) );
	}

	/**
	 * Records an attempt, and when the next one may be made.
	 *
	 * @param int    $id     The post.
	 * @param int    $until  Unix time of the next attempt.
	 * @param string $reason Why this one failed; empty if it has not failed yet.
	 */
	public static function attempt( int $id, int $until = 0, string $reason = '' ): void {
		global $wpdb;
		$table = self::table();
		self::write( $wpdb->prepare( "UPDATE $table SET attempts = LEAST(attempts + 1, 100), not_before = %d, error = NULLIF(%s, '') WHERE object_id = %d", $until, self::storable( $reason ), $id ) );
	}

	/**
	 * Takes back an attempt that was recorded beforehand, and that did not fail.
	 *
	 * @param int $id The post.
	 */
	public static function take_back( int $id ): void {
		global $wpdb;
		$table = self::table();
		self::write( $wpdb->prepare( "UPDATE $table SET attempts = attempts - 1 WHERE object_id = %d AND attempts > 0", $id ) );
	}

	/**
	 * Marks the failed rows again.
	 */
	public static function retry_failed(): void {
		global $wpdb;
		$table = self::table();
		$mark  = self::MARK;
		self::write( "UPDATE $table SET $mark WHERE status = 'failed'" );
	}

	/**
	 * Returns how many rows have each status.
	 *
	 * @return array{waiting: int, sent: int, failed: int}
	 */
	public static function counts(): array {
		global $wpdb;
		$table  = self::table();
		$counts = array(
			self::WAITING => 0,
			self::SENT    => 0,
			self::FAILED  => 0,
		);
		foreach ( $wpdb->get_results( "SELECT status, COUNT(*) AS number FROM $table GROUP BY status" ) as $row ) {
			$counts[ $row->status ] = (int) $row->number;
		}
		return $counts;
	}

	/**
	 * Returns when the next waiting row may be sent, in Unix seconds; null if no row waits.
	 */
	public static function due(): ?int {
		global $wpdb;
		$table = self::table();
		$due   = $wpdb->get_var( "SELECT MIN(not_before) FROM $table WHERE status = 'waiting'" );
		if ( '' !== $wpdb->last_error ) {
			return time() + MINUTE_IN_SECONDS; // The database does not say.
		}
		return null === $due ? null : (int) $due;
	}

	/**
	 * Returns the rows that failed last, or that are tried again after an error.
	 *
	 * @param int $limit How many at most.
	 * @return object[]
	 */
	public static function errors( int $limit ): array {
		global $wpdb;
		$table = self::table();
		return $wpdb->get_results( $wpdb->prepare( "SELECT object_id, status, error, changed FROM $table WHERE error IS NOT NULL ORDER BY changed DESC, object_id LIMIT %d", $limit ) );
	}

	/**
	 * Updates rows.
	 *
	 * @param int[]  $ids Their ids.
	 * @param string $set The assignments, in SQL.
	 */
	private static function update( array $ids, string $set ): void {
		global $wpdb;
		$table = self::table();
		$list  = self::ids( $ids );
		self::write( "UPDATE $table SET $set WHERE object_id IN ($list)" ); // phpcs:ignore
	}

	/**
	 * Ids as a list of SQL.
	 *
	 * @param int[] $ids Some ids; never none.
	 */
	private static function ids( array $ids ): string {
		return implode( ', ', array_map( 'intval', $ids ) );
	}

	/**
	 * Returns a reason without characters that the table's encoding does not have: with them, WordPress would
	 * refuse the statement.
	 *
	 * @param string $reason A reason.
	 */
	private static function storable( string $reason ): string {
		global $wpdb;
		$text = $wpdb->strip_invalid_text_for_column( self::table(), 'error', $reason );
		return is_string( $text ) ? $text : '';
	}

	/**
	 * Runs a statement, again if it was the victim of a deadlock with another process.
	 *
	 * @param string $sql A prepared statement.
	 * @return int|bool What wpdb::query returns; never false.
	 * @throws \RuntimeException If the database fails.
	 */
	private static function write( string $sql ) {
		global $wpdb;
		$shown = $wpdb->suppress_errors();
		for ( $try = 1; $try < self::TRIES; $try++ ) {
			$done = $wpdb->query( $sql ); // phpcs:ignore
			if ( false !== $done || ! str_contains( $wpdb->last_error, 'Deadlock' ) ) {
				break;
			}
		}
		$wpdb->suppress_errors( $shown );
		if ( false === $done ) {
			$done = $wpdb->query( $sql ); // phpcs:ignore
			State::check_database(); // A run that cannot record what it does would do it again and again.
		}
		return $done;
	}
}
