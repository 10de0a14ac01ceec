<?php
/**
 * Connects the parts of the plugin to WordPress.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * The plugin's hooks. One change of a post goes down these files:
 *
 *     Changes.php    a post was saved, trashed, restored or deleted: a row is marked, a run is scheduled
 *     Schedule.php   when the next run begins: Action Scheduler if it is there, else WP-Cron
 *     Runner.php     one run: takes marked rows and sends batches until there is no time or no budget
 *     Documents.php  a post as a document
 *     Api.php        one request to the service, through WordPress's HTTP API
 *     Pacing.php     the budget, for requests of this plugin and of others to the same service
 *     Items.php, State.php   the two tables
 */
final class Plugin {

	/**
	 * Registers all hooks. It reads no option and runs no query.
	 */
	public static function start(): void {
		add_action( 'init', array( self::class, 'init' ) );
		add_action( 'init', array( Schema::class, 'ensure' ) );
		add_filter( 'wpmu_drop_tables', array( Schema::class, 'tables_of_dropped_site' ) );
		Changes::register();
		Pacing::register();
		Schedule::register();
		if ( is_admin() ) {
			Page::register();
		}
		if ( defined( 'WP_CLI' ) && WP_CLI ) {
			\WP_CLI::add_command( 'weir', Command::class );
		}
	}

	/**
	 * Loads the translation: that of wordpress.org, else one that the plugin carries, for the country or for its
	 * language.
	 */
	public static function init(): void {
		/** This filter is documented in wp-includes/l10n.php */
		$locale    = apply_filters( 'plugin_locale', determine_locale(), 'weir-sync' );
		$directory = __DIR__ . '/../languages';
		if ( ! preg_match( '~^([a-z]{2,3})(?:_\w+)?$~', $locale, $match ) ) {
			return;
		}
		$files = array_merge(
			array( WP_LANG_DIR . "/plugins/weir-sync-$locale.mo", "$directory/weir-sync-$locale.mo", "$directory/weir-sync-{$match[1]}.mo" ),
			(array) glob( "$directory/weir-sync-{$match[1]}_*.mo" )
		);
		foreach ( $files as $file ) {
			if ( is_readable( $file ) ) {
				load_textdomain( 'weir-sync', $file, $locale );
				return;
			}
		}
	}

	/**
	 * Makes the tables. Changes while the plugin was not active were not seen, so all posts are compared
	 * again on each site on which it was in use before.
	 *
	 * @param bool $network_wide Whether the plugin is activated on all sites of a network.
	 */
	public static function activate( bool $network_wide = false ): void {
		Schema::ensure();
		self::on_each_site(
			$network_wide,
			function (): void {
				if ( Settings::load()->is_ready() ) {
					Schema::ensure();
					Scan::begin();
					Schedule::at( time() );
				}
			}
		);
	}

	/**
	 * Removes the scheduled runs of the site, or of all sites of a network.
	 *
	 * @param bool $network_wide Whether the plugin is deactivated on all sites of a network.
	 */
	public static function deactivate( bool $network_wide = false ): void {
		self::on_each_site( $network_wide, array( Schedule::class, 'remove' ) );
	}

	/**
	 * Calls a function on this site, or on each site of a network.
	 *
	 * @param bool     $network_wide Whether to call it on each site.
	 * @param callable $call         The function, without arguments.
	 */
	public static function on_each_site( bool $network_wide, callable $call ): void {
		if ( ! is_multisite() || ! $network_wide ) {
			$call();
			return;
		}
		foreach ( get_sites(
			array(
				'fields' => 'ids',
				'number' => 0,
			)
		) as $id ) {
			switch_to_blog( $id );
			$call();
			restore_current_blog();
		}
	}
}
