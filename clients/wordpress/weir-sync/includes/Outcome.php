<?php
/**
 * How a run ended.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * Why a run ended, and when the next one makes sense.
 */
final class Outcome {

	public const DONE   = 'done';   // No row is left that could be sent now.
	public const TIME   = 'time';   // The run's time is over, and rows are left.
	public const BUDGET = 'budget'; // The budget is spent.
	public const BUSY   = 'busy';   // Another run is under way.
	public const ERROR  = 'error';  // The service cannot be used at present.
	public const OFF    = 'off';    // The settings are not complete, or nobody has agreed.

	/**
	 * An outcome.
	 *
	 * @param string   $kind    One of the constants.
	 * @param int|null $again   Unix time of the next run; null if none is needed.
	 * @param string   $problem What is wrong, for people.
	 */
	public function __construct( public readonly string $kind, public readonly ?int $again = null, public readonly string $problem = '' ) {}
}
