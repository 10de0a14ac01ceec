<?php
/**
 * Posts as documents of the service.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * Makes documents of posts: what a visitor sees who is not logged in.
 */
final class Documents {

	private const MAX_TITLE = 500;
	private const MAX_TEXT  = 262144;

	/** Elements whose content is no text. */
	private const WITHOUT_TEXT = 'script|style|noscript|template|svg|iframe|object|select|textarea';

	/** Elements that begin a line. */
	private const LINES = 'address|article|aside|blockquote|br|dd|details|div|dl|dt|figcaption|figure|footer|form|h[1-6]|header|hr|li|main|nav|ol|p|pre|section|summary|table|td|th|tr|ul';

	/**
	 * Whether a post is public, and its type is one that is sent.
	 *
	 * @param \WP_Post $post     A post.
	 * @param Settings $settings The settings.
	 */
	public static function is_public( \WP_Post $post, Settings $settings ): bool {
		$public = 'publish' === $post->post_status && '' === $post->post_password
			&& in_array( $post->post_type, $settings->types, true ) && is_post_type_viewable( $post->post_type );
		/**
		 * Filters whether a public post is sent to the service. A post that is not public is never sent.
		 *
		 * @param bool     $send Whether it is sent.
		 * @param \WP_Post $post The post.
		 */
		return $public && apply_filters( 'weir_sync_send_post', true, $post );
	}

	/**
	 * The id of a post's document.
	 *
	 * @param int $id A post.
	 */
	public static function id( int $id ): string {
		return ( get_current_blog_id() > 1 ? 'site-' . get_current_blog_id() . '-' : '' ) . "post-$id";
	}

	/**
	 * Returns posts as they are in the database, whatever an object cache has.
	 *
	 * @param int[] $ids Their ids.
	 * @return array<int, \WP_Post> Posts by id; those that do not exist are missing.
	 * @throws \RuntimeException If the database fails.
	 */
	public static function posts( array $ids ): array {
		global $wpdb;
		$posts = array();
		$list  = implode( ', ', array_map( 'intval', $ids ) );
		$rows  = $wpdb->get_results( "SELECT * FROM {$wpdb->posts} WHERE ID IN ($list)" ); // phpcs:ignore
		State::check_database(); // Else all posts would seem to be deleted.
		foreach ( $rows as $row ) {
			$posts[ (int) $row->ID ] = new \WP_Post( sanitize_post( $row, 'raw' ) );
		}
		update_postmeta_cache( array_keys( $posts ) );
		return $posts;
	}

	/**
	 * Returns the document of a post.
	 *
	 * @param \WP_Post $post A public post.
	 * @return array{id: string, title: string, url: string, text: string}
	 */
	public static function of( \WP_Post $post ): array {
		$url   = (string) get_permalink( $post );
		$title = self::decoded( wp_strip_all_tags( $post->post_title ) );
		$text  = self::text( self::html( $post ) );
		/**
		 * Filters a document before it is sent, for example to add fields of a product to its text.
		 *
		 * @param array    $document Its title, url and text.
		 * @param \WP_Post $post     The post.
		 */
		$document = (array) apply_filters( 'weir_sync_document', compact( 'title', 'url', 'text' ), $post );
		$title    = self::cut( self::line( (string) ( $document['title'] ?? '' ) ), self::MAX_TITLE );
		return array(
			'id'    => self::id( $post->ID ),
			'title' => '' === $title ? self::cut( $url, self::MAX_TITLE ) : $title,
			'url'   => (string) ( $document['url'] ?? '' ),
			'text'  => self::cut( self::valid( (string) ( $document['text'] ?? '' ) ), self::MAX_TEXT ),
		);
	}

	/**
	 * Returns what a post shows to visitors: its excerpt if it has one (a product's short description), and
	 * its content, with blocks and shortcodes.
	 *
	 * @param \WP_Post $post A post.
	 */
	private static function html( \WP_Post $post ): string {
		global $wp_embed;
		$before = $GLOBALS['post'] ?? null;
		$user   = get_current_user_id();
		$depth  = ob_get_level();
		wp_set_current_user( 0 );
		$GLOBALS['post'] = $post; // phpcs:ignore WordPress.WP.GlobalVariablesOverride
		setup_postdata( $post );
		// Embeds would ask other services about their addresses.
		remove_filter( 'the_content', array( $wp_embed, 'run_shortcode' ), 8 );
		remove_filter( 'the_content', array( $wp_embed, 'autoembed' ), 8 );
		ob_start(); // Some shortcodes print.
		try {
			return $post->post_excerpt . "\n\n" . apply_filters( 'the_content', $post->post_content );
		} finally {
			while ( ob_get_level() > $depth ) {
				ob_end_clean();
			}
			add_filter( 'the_content', array( $wp_embed, 'run_shortcode' ), 8 );
			add_filter( 'the_content', array( $wp_embed, 'autoembed' ), 8 );
			$GLOBALS['post'] = $before; // phpcs:ignore WordPress.WP.GlobalVariablesOverride
			if ( $before instanceof \WP_Post ) {
				setup_postdata( $before );
			}
			wp_set_current_user( $user );
		}
	}

	/**
	 * Returns the text of HTML, in lines, with the descriptions of images.
	 *
	 * @param string $html HTML.
	 */
	private static function text( string $html ): string {
		$html = self::without_parts( $html );
		foreach ( array(
			'~<img\b[^<>]*?\balt=(["\'])([^<>]*?)\1~i' => ' $2 <img ', // The rest of the tag is removed with the others.
			'~\s+~'                                    => ' ',
			'~</?(?:' . self::LINES . ')\b[^>]*>~i'    => "\n",
		) as $pattern => $with ) {
			$html = preg_replace( $pattern, $with, $html ) ?? $html; // Unchanged if PHP gives up on it.
		}
		$lines = array_map( array( self::class, 'line' ), explode( "\n", self::decoded( strip_tags( $html ) ) ) ); // phpcs:ignore
		return implode( "\n", array_filter( $lines, fn( string $line ): bool => '' !== $line ) );
	}

	/**
	 * Returns HTML without comments and elements whose content is no text. It takes time in proportion to the
	 * length: a regular expression gives up on a script of 1 MB.
	 *
	 * @param string $html HTML.
	 */
	private static function without_parts( string $html ): string {
		$lower  = strtolower( $html );
		$result = '';
		$at     = 0;
		$open   = array(); // What has no end below.
		while ( preg_match( '~<(?:!--|(?:' . self::WITHOUT_TEXT . ')\b)~', $lower, $match, PREG_OFFSET_CAPTURE, $at ) ) {
			list( $begin, $start ) = $match[0];

			$end = '<!--' === $begin ? '-->' : '</' . substr( $begin, 1 );
			$to  = isset( $open[ $end ] ) ? false : strpos( $lower, $end, $start );
			$to  = false === $to ? false : strpos( $lower, '>', $to );
			if ( false === $to ) {
				$open[ $end ] = true;
				$result      .= substr( $html, $at, $start + 1 - $at );
				$at           = $start + 1;
				continue;
			}
			$result .= substr( $html, $at, $start - $at ) . ( '-->' === $end ? '' : ' ' );
			$at      = $to + 1;
		}
		return $result . substr( $html, $at );
	}

	/**
	 * Returns text of HTML without its entities.
	 *
	 * @param string $text Text of HTML.
	 */
	private static function decoded( string $text ): string {
		return html_entity_decode( $text, ENT_QUOTES | ENT_HTML5, 'UTF-8' );
	}

	/**
	 * Returns a text on one line, without control characters.
	 *
	 * @param string $text A text.
	 */
	public static function line( string $text ): string {
		return trim( preg_replace( '~[\s\p{Z}]+~u', ' ', self::valid( $text ) ) ?? '' );
	}

	/**
	 * Returns a text without what the service refuses: bytes that are not UTF-8, and control characters.
	 *
	 * @param string $text A text.
	 */
	private static function valid( string $text ): string {
		$text = wp_check_invalid_utf8( $text, true );
		return preg_replace( '~[^\P{Cc}\t\n\r]~u', ' ', $text ) ?? '';
	}

	/**
	 * Cuts a text to a number of bytes, between characters.
	 *
	 * @param string $text A text in UTF-8.
	 * @param int    $max  How many bytes it may have.
	 */
	private static function cut( string $text, int $max ): string {
		if ( strlen( $text ) <= $max ) {
			return $text;
		}
		while ( $max > 0 && 0x80 === ( ord( $text[ $max ] ) & 0xC0 ) ) {
			--$max;
		}
		return substr( $text, 0, $max );
	}
}
