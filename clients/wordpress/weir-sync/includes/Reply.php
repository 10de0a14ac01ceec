<?php
/**
 * The answer to a request.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * What the service answered, or why it did not.
 */
final class Reply {

	/**
	 * An answer.
	 *
	 * @param int      $status   The HTTP status; 0 if there was no answer.
	 * @param array    $body     The JSON object of the answer; empty if it is none.
	 * @param string   $problem  What to show if this is not the wanted answer.
	 * @param int|null $retry_at Unix time at which the budget allows the request; null if it was sent and not
	 *                           refused for its rate.
	 */
	public function __construct( public readonly int $status, public readonly array $body, public readonly string $problem, public readonly ?int $retry_at = null ) {}

	/**
	 * Whether the answer accounts for all documents of a batch, as the service does. Another server at its
	 * address must not pass for it.
	 *
	 * @param string $method PUT or DELETE.
	 * @param int    $number How many documents the batch has.
	 */
	public function acknowledges( string $method, int $number ): bool {
		if ( 200 !== $this->status ) {
			return false;
		}
		if ( 'DELETE' === $method ) {
			$deleted = $this->body['deleted'] ?? null;
			return is_int( $deleted ) && $deleted >= 0 && $deleted <= $number;
		}
		$sum = 0;
		foreach ( array( 'created', 'updated', 'unchanged' ) as $name ) {
			$count = $this->body[ $name ] ?? null;
			if ( ! is_int( $count ) || $count < 0 ) {
				return false;
			}
			$sum += $count;
		}
		return $sum === $number;
	}

	/**
	 * The reasons of a 422 answer, by the index of the document.
	 *
	 * @param int $number How many documents the batch has.
	 * @return array<int, string>
	 */
	public function refused_items( int $number ): array {
		$reasons = array();
		foreach ( (array) ( $this->body['error']['items'] ?? array() ) as $item ) {
			$index = $item['index'] ?? null;
			if ( is_int( $index ) && $index >= 0 && $index < $number && is_string( $item['reason'] ?? null ) ) {
				$reasons[ $index ] = ( isset( $reasons[ $index ] ) ? $reasons[ $index ] . '; ' : '' ) . $item['reason'];
			}
		}
		return $reasons;
	}
}
