<?php
/**
 * When the next run begins.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * Schedules runs with Action Scheduler if a plugin such as WooCommerce carries it, else with WP-Cron.
 * There is one scheduled run at most, the earliest that was asked for.
 */
final class Schedule {

	public const HOOK   = 'weir_sync_run';
	public const HOURLY = 'weir_sync_hourly';

	/**
	 * Registers what scheduled events do.
	 */
	public static function register(): void {
		add_action( self::HOOK, array( Runner::class, 'run_scheduled' ) );
		add_action( self::HOURLY, array( self::class, 'check' ) );
		add_action( 'admin_init', array( self::class, 'ensure_hourly' ) );
	}

	/**
	 * Schedules a run, unless an earlier one is scheduled.
	 *
	 * @param int $time Unix time.
	 */
	public static function at( int $time ): void {
		self::ensure_hourly();
		$next = self::next();
		if ( null !== $next && $next <= $time ) {
			return;
		}
		self::clear();
		if ( self::has_action_scheduler() ) {
			as_schedule_single_action( $time, self::HOOK );
		} else {
			wp_schedule_single_event( $time, self::HOOK );
		}
	}

	/**
	 * Returns when the next run is scheduled, in Unix seconds; null if none is.
	 */
	public static function next(): ?int {
		if ( self::has_action_scheduler() ) {
			$pending = as_get_scheduled_actions(
				array(
					'hook'     => self::HOOK,
					'status'   => \ActionScheduler_Store::STATUS_PENDING,
					'orderby'  => 'date',
					'order'    => 'ASC',
					'per_page' => 1,
				)
			);
			$date    = $pending ? reset( $pending )->get_schedule()->get_date() : null;
			return $date ? $date->getTimestamp() : null;
		}
		$next = wp_next_scheduled( self::HOOK );
		return false === $next ? null : $next;
	}

	/**
	 * Removes the scheduled run.
	 */
	public static function clear(): void {
		if ( self::has_action_scheduler() ) {
			as_unschedule_all_actions( self::HOOK );
		}
		wp_clear_scheduled_hook( self::HOOK );
	}

	/**
	 * Removes everything that is scheduled.
	 */
	public static function remove(): void {
		self::clear();
		wp_clear_scheduled_hook( self::HOURLY );
	}

	/**
	 * Removes also what Action Scheduler remembers of runs that have ended.
	 */
	public static function forget(): void {
		self::remove();
		if ( ! self::has_action_scheduler() ) {
			return;
		}
		$store = \ActionScheduler::store();
		foreach ( as_get_scheduled_actions(
			array(
				'hook'     => self::HOOK,
				'per_page' => -1,
			),
			'ids'
		) as $id ) {
			$store->delete_action( $id );
		}
	}

	/**
	 * Schedules a run if there is something to do and none is scheduled: two processes that change WP-Cron's
	 * list at the same time can lose an event. The token may also have come with wp-config.php.
	 */
	public static function check(): void {
		State::sweep();
		$due = Items::due();
		if ( ! Settings::load()->is_ready() ) {
			return;
		}
		if ( null !== $due || Scan::is_under_way() || ! isset( State::get( Runner::STATE )['where'] ) ) {
			self::at( max( $due ?? 0, time() ) );
		}
	}

	/**
	 * Schedules the hourly check once there is something to keep in step.
	 */
	public static function ensure_hourly(): void {
		if ( Settings::load()->consent > 0 && ! wp_next_scheduled( self::HOURLY ) ) {
			wp_schedule_event( time() + HOUR_IN_SECONDS, 'hourly', self::HOURLY );
		}
	}

	/**
	 * Whether Action Scheduler is there and has its tables.
	 */
	private static function has_action_scheduler(): bool {
		return function_exists( 'as_get_scheduled_actions' ) && class_exists( 'ActionScheduler', false ) && \ActionScheduler::is_initialized();
	}
}
