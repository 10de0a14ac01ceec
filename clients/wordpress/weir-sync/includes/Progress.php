<?php
/**
 * How far the sync is.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * The figures of the settings page and of `wp weir status`.
 */
final class Progress {

	/**
	 * Figures.
	 *
	 * @param int      $sent    Posts that the service has as they are.
	 * @param int      $waiting Posts that are to be sent or deleted, those that a scan has yet to mark included.
	 * @param int      $failed  Posts that cannot be sent.
	 * @param string   $problem Why the last run ended; empty if nothing was wrong.
	 * @param string   $outcome How the last run ended: a constant of Outcome, or an empty string.
	 * @param int|null $next    When the next run is scheduled, in Unix seconds.
	 */
	private function __construct( public readonly int $sent, public readonly int $waiting, public readonly int $failed, public readonly string $problem, public readonly string $outcome, public readonly ?int $next ) {}

	/**
	 * Reads the figures.
	 */
	public static function now(): self {
		$counts = Items::counts();
		$status = State::get( Runner::STATE );
		return new self(
			$counts[ Items::SENT ],
			$counts[ Items::WAITING ] + Scan::left( Settings::load() ),
			$counts[ Items::FAILED ],
			(string) ( $status['problem'] ?? '' ),
			(string) ( $status['outcome'] ?? '' ),
			Schedule::next()
		);
	}
}
