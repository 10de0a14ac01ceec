<?php
/**
 * Notices changes of posts.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * Marks rows when posts change. It only writes to the database and schedules a run; it never sends.
 */
final class Changes {

	/**
	 * Registers the hooks.
	 */
	public static function register(): void {
		// Terms and fields are stored after save_post, so the second hook follows them.
		foreach ( array( 'save_post', 'wp_after_insert_post', 'trashed_post', 'untrashed_post', 'before_delete_post' ) as $hook ) {
			add_action( $hook, array( self::class, 'changed' ), 100 );
		}
		add_action( 'deleted_post', array( self::class, 'deleted' ), 100 );
		add_action( 'set_object_terms', array( self::class, 'changed' ), 100 );
		add_action( 'post_updated', array( self::class, 'moved' ), 100, 3 );
		foreach ( array( 'permalink_structure', 'home' ) as $option ) {
			add_action( "update_option_$option", array( self::class, 'addresses_changed' ) );
		}
	}

	/**
	 * A post was saved, or its status changed.
	 *
	 * @param int $id The post.
	 */
	public static function changed( $id ): void {
		$post = get_post( $id );
		if ( ! $post || 'revision' === $post->post_type || 'auto-draft' === $post->post_status || ! self::is_active() ) {
			return;
		}
		self::note(
			function () use ( $post ): bool {
				if ( ! Documents::is_public( $post, Settings::load() ) ) {
					return Items::hide( $post->ID );
				}
				Items::mark( $post->ID );
				return true;
			}
		);
	}

	/**
	 * A post was deleted.
	 *
	 * @param int $id The post.
	 */
	public static function deleted( $id ): void {
		if ( self::is_active() ) {
			self::note( fn(): bool => Items::hide( (int) $id ) );
		}
	}

	/**
	 * The address of a page is part of the addresses of the pages below it.
	 *
	 * @param int      $id     The post.
	 * @param \WP_Post $after  The post now.
	 * @param \WP_Post $before The post before.
	 */
	public static function moved( $id, $after, $before ): void {
		global $wpdb;
		if ( ! is_post_type_hierarchical( $after->post_type ) || ( $after->post_name === $before->post_name && $after->post_parent === $before->post_parent ) ) {
			return;
		}
		// Most pages have none below them, and get their name when they are published.
		if ( $wpdb->get_var( $wpdb->prepare( "SELECT ID FROM $wpdb->posts WHERE post_parent = %d AND post_type = %s LIMIT 1", $id, $after->post_type ) ) ) {
			self::addresses_changed();
		}
	}

	/**
	 * Addresses of other posts may have changed. All are compared again; those that are as before are not
	 * sent.
	 */
	public static function addresses_changed(): void {
		if ( self::is_active() ) {
			self::note(
				function (): bool {
					Scan::begin();
					return true;
				}
			);
		}
	}

	/**
	 * Notes a change, and schedules a run for it. If the database fails, saving a post goes on.
	 *
	 * @param callable $write Writes it, and returns whether there is anything to send.
	 */
	private static function note( callable $write ): void {
		try {
			if ( $write() ) {
				Schedule::at( Runner::resumes() );
			}
		} catch ( \RuntimeException $e ) {
			trigger_error( esc_html( $e->getMessage() ), E_USER_WARNING ); // phpcs:ignore
		}
	}

	/**
	 * Whether changes are noticed: before the first consent, there is nothing to keep in step.
	 */
	private static function is_active(): bool {
		return Settings::load()->consent > 0;
	}
}
