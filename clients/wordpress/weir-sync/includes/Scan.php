<?php
/**
 * The first sync, and later comparisons of all posts.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * Goes over all public posts in the order of their ids, a part at a time, and marks them. Its position is
 * stored, so a scan continues after a crash. A part that is marked twice is compared twice, and sent once.
 */
final class Scan {

	private const STATE = 'scan';

	/** How many posts a part has. */
	private const PART = 1000;

	/**
	 * Begins a scan. What was sent and is not public any more is marked first.
	 */
	public static function begin(): void {
		State::set(
			self::STATE,
			array(
				'id'    => wp_generate_uuid4(),
				'after' => 0,
			)
		);
		Items::mark_all();
	}

	/**
	 * Marks the next part.
	 *
	 * @param Settings $settings The settings.
	 * @return bool Whether a scan was under way.
	 */
	public static function step( Settings $settings ): bool {
		$scan  = State::get( self::STATE );
		$after = $scan['after'] ?? null;
		State::check_database();
		if ( null === $after ) {
			return false;
		}
		$last = Items::mark_range( (int) $after, $settings->types, self::PART );
		State::change(
			self::STATE,
			function ( array $now ) use ( $scan, $last ): array {
				if ( $now !== $scan ) {
					return $now; // It has begun anew meanwhile.
				}
				return 0 === $last ? array() : array_merge( $scan, array( 'after' => $last ) );
			}
		);
		return true;
	}

	/**
	 * Whether a scan has begun and not ended.
	 */
	public static function is_under_way(): bool {
		return isset( State::get( self::STATE )['after'] );
	}

	/**
	 * Returns how many posts the scan has not marked yet.
	 *
	 * @param Settings $settings The settings.
	 */
	public static function left( Settings $settings ): int {
		$after = State::get( self::STATE )['after'] ?? null;
		return null === $after || array() === $settings->types ? 0 : Items::unmarked( (int) $after, $settings->types );
	}
}
