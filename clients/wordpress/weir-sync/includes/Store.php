<?php
/**
 * The pacer's budgets in the site's database.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * Keeps budgets in the table of State, where all processes and servers of a site find them. Their times are
 * the database's.
 */
final class Store implements Pacer\StoreWithClock {

	public const PREFIX = 'budget-';

	/** After so many nanoseconds the database's clock is read again. */
	private const CLOCK_VALID = 60000000000;

	/**
	 * When the database's clock was read, by this machine's.
	 *
	 * @var int
	 */
	private int $read_at = 0;

	/**
	 * How far the database's clock is ahead of this machine's.
	 *
	 * @var int
	 */
	private int $ahead = 0;

	/**
	 * Replaces a budget in one atomic step.
	 *
	 * @param string   $key    The budget's key.
	 * @param callable $change Gets the state or null and returns the new one.
	 */
	public function update( string $key, callable $change ): void {
		// The column is text, and a state may be any bytes.
		State::replace( self::PREFIX . $key, fn( ?string $was ): string => base64_encode( $change( null === $was ? null : (string) base64_decode( $was, true ) ) ) ); // phpcs:ignore
	}

	/**
	 * The database's time in Unix nanoseconds.
	 *
	 * @throws \RuntimeException If the database fails.
	 */
	public function time(): int {
		$now = hrtime( true );
		if ( 0 === $this->read_at || $now - $this->read_at > self::CLOCK_VALID ) {
			global $wpdb;
			$micros = $wpdb->get_var( 'SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)' );
			if ( ! is_numeric( $micros ) ) {
				throw new \RuntimeException( 'Weir Sync: the database does not report the time' );
			}
			$this->read_at = $now;
			$this->ahead   = (int) $micros * 1000 - $now;
		}
		return $now + $this->ahead;
	}
}
