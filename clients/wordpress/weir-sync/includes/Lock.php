<?php
/**
 * One run at a time.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * A lock that a run holds. If its process is killed, the lock expires.
 */
final class Lock {

	/** How long a lock is valid without being renewed: longer than a request may take. */
	public const SECONDS = 120;

	private const STATE = 'lock';

	/**
	 * A lock that was taken.
	 *
	 * @param string $owner   Identifies this run.
	 * @param int    $crashes How many runs before this one ended without releasing it, in a row.
	 */
	private function __construct( private readonly string $owner, public readonly int $crashes ) {}

	/**
	 * Takes the lock; null if another run holds it.
	 */
	public static function take(): ?self {
		$owner = wp_generate_uuid4();
		$now   = State::now();
		$value = State::change(
			self::STATE,
			function ( array $was ) use ( $owner, $now ): array {
				if ( ( $was['until'] ?? 0 ) > $now ) {
					return $was;
				}
				$crashes = ( $was['crashes'] ?? 0 ) + ( empty( $was['owner'] ) ? 0 : 1 );
				return array(
					'owner'   => $owner,
					'until'   => $now + self::SECONDS,
					'crashes' => $crashes,
				);
			}
		);
		return $value['owner'] === $owner ? new self( $owner, $value['crashes'] ) : null;
	}

	/**
	 * Extends the lock. It returns false if it has expired and another run has taken it.
	 */
	public function renew(): bool {
		$until = State::now() + self::SECONDS;
		$value = State::change( self::STATE, fn( array $was ): array => ( $was['owner'] ?? '' ) === $this->owner ? array_merge( $was, array( 'until' => $until ) ) : $was );
		return ( $value['owner'] ?? '' ) === $this->owner;
	}

	/**
	 * Releases the lock, if this run still holds it.
	 */
	public function release(): void {
		State::change(
			self::STATE,
			fn( array $was ): array => ( $was['owner'] ?? '' ) === $this->owner ? array(
				'owner'   => '',
				'until'   => 0,
				'crashes' => 0,
			) : $was
		);
	}
}
