<?php
/**
 * The plugin's tables.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * Makes and drops the two tables of a site.
 */
final class Schema {

	private const VERSION = '1';
	private const OPTION  = 'weir_sync_schema';

	/**
	 * Makes the tables of this site if it does not have them, such as a new site of a network.
	 */
	public static function ensure(): void {
		if ( self::VERSION === get_option( self::OPTION ) ) {
			return;
		}
		global $wpdb;
		require_once ABSPATH . 'wp-admin/includes/upgrade.php';
		$items   = Items::table();
		$state   = State::table();
		$charset = $wpdb->get_charset_collate();
		dbDelta(
			"CREATE TABLE $items (
				object_id bigint(20) unsigned NOT NULL,
				status varchar(10) NOT NULL DEFAULT 'waiting',
				urgency tinyint(3) unsigned NOT NULL DEFAULT 0,
				version int(10) unsigned NOT NULL DEFAULT 1,
				claimed int(10) unsigned NOT NULL DEFAULT 0,
				present tinyint(1) unsigned NOT NULL DEFAULT 0,
				digest char(32) NOT NULL DEFAULT '',
				sending char(32) NOT NULL DEFAULT '',
				attempts tinyint(3) unsigned NOT NULL DEFAULT 0,
				not_before bigint(20) unsigned NOT NULL DEFAULT 0,
				error text NULL,
				changed bigint(20) unsigned NOT NULL DEFAULT 0,
				PRIMARY KEY  (object_id),
				KEY next (status,urgency,object_id)
			) $charset;
			CREATE TABLE $state (
				name varchar(150) NOT NULL,
				value longtext NOT NULL,
				version bigint(20) unsigned NOT NULL DEFAULT 1,
				changed bigint(20) unsigned NOT NULL DEFAULT 0,
				PRIMARY KEY  (name)
			) $charset;"
		);
		foreach ( array( $items, $state ) as $table ) {
			if ( null === $wpdb->get_var( $wpdb->prepare( 'SHOW TABLES LIKE %s', $wpdb->esc_like( $table ) ) ) ) {
				return; // The next request tries again.
			}
		}
		update_option( self::OPTION, self::VERSION );
	}

	/**
	 * Removes everything that the plugin has stored on this site.
	 */
	public static function remove(): void {
		global $wpdb;
		Schedule::forget();
		foreach ( array( Items::table(), State::table() ) as $table ) {
			$wpdb->query( "DROP TABLE IF EXISTS $table" );
		}
		foreach ( array( self::OPTION, Settings::OPTION, Settings::TOKEN ) as $option ) {
			delete_option( $option );
		}
	}

	/**
	 * Adds the tables to those that WordPress drops with a site of a network.
	 *
	 * @param string[] $tables The tables of the site.
	 * @return string[]
	 */
	public static function tables_of_dropped_site( array $tables ): array {
		return array_merge( $tables, array( Items::table(), State::table() ) );
	}
}
