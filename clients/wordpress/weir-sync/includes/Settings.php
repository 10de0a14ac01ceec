<?php
/**
 * What the administrator has set.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * The settings of a site. The token has an option of its own, which is not loaded with every page.
 */
final class Settings {

	public const OPTION = 'weir_sync_settings';
	public const TOKEN  = 'weir_sync_token';

	/**
	 * Settings as they are stored.
	 *
	 * @param string   $url     Address of the service, without /v1/wp and without a slash at its end.
	 * @param string[] $types   Post types that are sent.
	 * @param int      $consent When someone agreed that the site sends to this address; 0 if not.
	 * @param ?string  $token   The stored token, if it has been read already.
	 */
	private function __construct( public readonly string $url, public readonly array $types, public readonly int $consent, private readonly ?string $token = null ) {}

	/**
	 * Reads the settings.
	 */
	public static function load(): self {
		return self::of( get_option( self::OPTION ) );
	}

	/**
	 * Reads the settings and the token as they are in the database now, past any cache: others may have changed
	 * them since this process began.
	 */
	public static function from_database(): self {
		return self::of( self::option( self::OPTION ), (string) self::option( self::TOKEN ) );
	}

	/**
	 * Reads an option past any cache; null if there is none.
	 *
	 * @param string $name The option.
	 * @return mixed
	 */
	private static function option( string $name ) {
		global $wpdb;
		return maybe_unserialize( $wpdb->get_var( $wpdb->prepare( "SELECT option_value FROM $wpdb->options WHERE option_name = %s", $name ) ) );
	}

	/**
	 * Makes settings of a stored value.
	 *
	 * @param mixed   $stored The value.
	 * @param ?string $token  The stored token, if it has been read.
	 */
	private static function of( $stored, ?string $token = null ): self {
		$stored = is_array( $stored ) ? $stored : array();
		return new self(
			(string) ( $stored['url'] ?? '' ),
			array_values( array_filter( (array) ( $stored['types'] ?? self::default_types() ), 'is_string' ) ),
			(int) ( $stored['consent'] ?? 0 ),
			$token
		);
	}

	/**
	 * Stores settings.
	 *
	 * @param string   $url     A checked address, or an empty string.
	 * @param string[] $types   Post types.
	 * @param int      $consent When someone agreed; 0 if not.
	 */
	public static function save( string $url, array $types, int $consent ): void {
		update_option( self::OPTION, compact( 'url', 'types', 'consent' ) );
	}

	/**
	 * Stores the token. An empty one removes it.
	 *
	 * @param string $token The token.
	 */
	public static function save_token( string $token ): void {
		if ( '' === $token ) {
			delete_option( self::TOKEN );
			return;
		}
		update_option( self::TOKEN, $token, false );
	}

	/**
	 * The token: the constant WEIR_SYNC_TOKEN of wp-config.php, else the stored one. The constant is sent to no
	 * other server than that of WEIR_SYNC_URL, if wp-config.php has that too.
	 */
	public function token(): string {
		$allowed = self::has_constant() && ( ! defined( 'WEIR_SYNC_URL' ) || Pacing::is_same_server( $this->url, (string) WEIR_SYNC_URL ) );
		return $allowed ? (string) WEIR_SYNC_TOKEN : $this->token ?? (string) get_option( self::TOKEN, '' );
	}

	/**
	 * Whether wp-config.php has the token.
	 */
	public static function has_constant(): bool {
		return defined( 'WEIR_SYNC_TOKEN' ) && '' !== WEIR_SYNC_TOKEN && ( ! is_multisite() || defined( 'WEIR_SYNC_URL' ) );
	}

	/**
	 * Whether the plugin may send: someone has agreed, and there is an address and a token. If no post type is
	 * chosen, it deletes what it has sent.
	 */
	public function is_ready(): bool {
		return $this->consent > 0 && '' !== $this->url && '' !== $this->token();
	}

	/**
	 * Identifies the service and the token without showing either.
	 */
	public function fingerprint(): string {
		return substr( hash( 'sha256', $this->url . "\0" . $this->token() ), 0, 32 );
	}

	/**
	 * Checks an address that was entered. The token is sent there, so it must be https, unless the service
	 * is on this machine.
	 *
	 * @param string $entered What was entered.
	 * @return string The address, or an empty string if it cannot be one.
	 */
	public static function checked_url( string $entered ): string {
		$url   = untrailingslashit( preg_replace( '~/v1/wp/?$~', '', esc_url_raw( trim( $entered ), array( 'http', 'https' ) ) ) );
		$parts = wp_parse_url( $url );
		if ( ! is_array( $parts ) || empty( $parts['host'] ) || isset( $parts['user'] ) || isset( $parts['query'] ) || isset( $parts['fragment'] ) ) {
			return '';
		}
		$local = in_array( $parts['host'], array( 'localhost', '127.0.0.1', '[::1]' ), true );
		// On a network, an administrator of one site must not reach what only the machine itself can.
		$local = $local && ( ! is_multisite() || is_super_admin() || self::load()->url === $url );
		return 'https' === $parts['scheme'] || $local ? $url : '';
	}

	/**
	 * The post types that can be chosen: those with pages that visitors can open.
	 *
	 * @return array<string, string> Labels by name.
	 */
	public static function possible_types(): array {
		$types = array();
		foreach ( get_post_types( array( 'public' => true ), 'objects' ) as $type ) {
			if ( 'attachment' !== $type->name && is_post_type_viewable( $type ) ) {
				$types[ $type->name ] = $type->labels->name;
			}
		}
		return $types;
	}

	/**
	 * The post types that are chosen at first: posts, pages and the products of a shop.
	 *
	 * @return string[]
	 */
	private static function default_types(): array {
		return array_values( array_filter( array( 'post', 'page', 'product' ), 'post_type_exists' ) );
	}
}
