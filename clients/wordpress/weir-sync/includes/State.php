<?php
/**
 * Named values that processes change at the same time.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * A table of named values. A change is one atomic step, whatever other processes do meanwhile. It does
 * not use options or transients: an object cache may return a value that another process has replaced.
 */
final class State {

	private const TRIES = 50;

	/** The longest time in seconds for which an unused budget is kept. */
	private const KEPT = 2 * DAY_IN_SECONDS;

	/**
	 * The table's name on this site.
	 */
	public static function table(): string {
		global $wpdb;
		return $wpdb->prefix . 'weir_sync_state';
	}

	/**
	 * Returns a value; null if there is none.
	 *
	 * @param string $name The value's name.
	 */
	public static function text( string $name ): ?string {
		global $wpdb;
		$table = self::table();
		return $wpdb->get_var( $wpdb->prepare( "SELECT value FROM $table WHERE name = %s", $name ) );
	}

	/**
	 * Returns a value that is an array; an empty one if there is none.
	 *
	 * @param string $name The value's name.
	 */
	public static function get( string $name ): array {
		$value = json_decode( self::text( $name ) ?? '', true );
		return is_array( $value ) ? $value : array();
	}

	/**
	 * Changes a value that is an array.
	 *
	 * @param string   $name   The value's name.
	 * @param callable $change Gets the value and returns the new one. It may be called several times.
	 * @return array The new value.
	 */
	public static function change( string $name, callable $change ): array {
		$new = array();
		self::replace(
			$name,
			function ( ?string $was ) use ( $change, &$new ): string {
				$value = json_decode( $was ?? '', true );
				$new   = $change( is_array( $value ) ? $value : array() );
				return wp_json_encode( $new );
			}
		);
		return $new;
	}

	/**
	 * Sets members of a value that is an array.
	 *
	 * @param string $name    The value's name.
	 * @param array  $members The members that change.
	 */
	public static function set( string $name, array $members ): array {
		return self::change( $name, fn( array $value ): array => array_merge( $value, $members ) );
	}

	/**
	 * Replaces a value in one atomic step: it is written only if no other process has changed it since
	 * it was read, and read again otherwise.
	 *
	 * @param string   $name   The value's name.
	 * @param callable $change Gets the value or null and returns the new one, or null to leave it. It may
	 *                         be called several times.
	 * @throws \RuntimeException If the database fails.
	 */
	public static function replace( string $name, callable $change ): void {
		global $wpdb;
		$table = self::table();
		// A table that is missing is reported by the exception, not as text in a page.
		$shown = $wpdb->suppress_errors();
		try {
			for ( $try = 0; $try < self::TRIES; $try++ ) {
				// After a conflict a locking read, which sees what others have committed even within a
				// transaction that began before.
				$lock = $try > 0 ? ' FOR UPDATE' : '';
				$row  = $wpdb->get_row( $wpdb->prepare( "SELECT value, version FROM $table WHERE name = %s$lock", $name ) );
				if ( '' !== $wpdb->last_error ) {
					break;
				}
				$new = $change( $row->value ?? null );
				if ( null === $new || ( $row && $row->value === $new ) ) {
					return;
				}
				if ( $row ) {
					$done = $wpdb->query( $wpdb->prepare( "UPDATE $table SET value = %s, version = version + 1, changed = %d WHERE name = %s AND version = %d", $new, time(), $name, $row->version ) );
				} else {
					$done = $wpdb->query( $wpdb->prepare( "INSERT IGNORE INTO $table (name, value, changed) VALUES (%s, %s, %d)", $name, $new, time() ) );
				}
				if ( 1 === $done ) {
					return;
				}
				if ( false === $done && ! str_contains( $wpdb->last_error, 'Deadlock' ) ) {
					break;
				}
			}
			throw new \RuntimeException( "Weir Sync: cannot write the state \"$name\": " . ( $wpdb->last_error ? $wpdb->last_error : 'too many conflicts' ) ); // phpcs:ignore
		} finally {
			$wpdb->suppress_errors( $shown );
		}
	}

	/**
	 * Throws if the last statement has failed. WordPress returns no rows then, as if there were none.
	 *
	 * @throws \RuntimeException If it has.
	 */
	public static function check_database(): void {
		global $wpdb;
		if ( '' !== $wpdb->last_error ) {
			throw new \RuntimeException( "Weir Sync: the database fails: $wpdb->last_error" ); // phpcs:ignore
		}
	}

	/**
	 * Returns the database's time in Unix seconds, which all servers of a site share.
	 */
	public static function now(): int {
		global $wpdb;
		return (int) $wpdb->get_var( 'SELECT UNIX_TIMESTAMP()' );
	}

	/**
	 * Deletes budgets of tokens that are no longer used.
	 */
	public static function sweep(): void {
		global $wpdb;
		$table = self::table();
		$wpdb->query( $wpdb->prepare( "DELETE FROM $table WHERE name LIKE %s AND changed < %d", $wpdb->esc_like( Store::PREFIX ) . '%', time() - self::KEPT ) );
	}
}
