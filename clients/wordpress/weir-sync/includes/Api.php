<?php
/**
 * Requests to the service.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * Sends one request at a time through WordPress's HTTP API, where Pacing holds it to the budget.
 */
final class Api {

	/** How long a request may take, in seconds. It is less than Lock::SECONDS. */
	private const TIMEOUT = 60;

	private const MAX_ANSWER  = 1048576;
	private const MAX_MESSAGE = 300;

	/**
	 * An API with its address and token.
	 *
	 * @param Settings $settings The settings.
	 */
	public function __construct( private readonly Settings $settings ) {}

	/**
	 * Sends a request.
	 *
	 * @param string      $method The method.
	 * @param string      $path   The path below /v1/wp.
	 * @param string|null $body   A JSON object, or null.
	 */
	public function send( string $method, string $path, ?string $body = null ): Reply {
		$headers = array(
			'Authorization' => 'Bearer ' . $this->settings->token(),
			'Accept'        => 'application/json',
		);
		if ( null !== $body ) {
			$headers['Content-Type'] = 'application/json';
		}
		$answer = wp_remote_request(
			$this->settings->url . '/v1/wp/' . $path,
			array(
				'method'              => $method,
				'headers'             => $headers,
				'body'                => $body,
				'timeout'             => self::TIMEOUT,
				'redirection'         => 0, // The token is for this host only.
				'user-agent'          => 'weir-sync/' . VERSION,
				'limit_response_size' => self::MAX_ANSWER,
			)
		);
		if ( is_wp_error( $answer ) ) {
			$retry_at = Pacing::ERROR === $answer->get_error_code() ? (int) $answer->get_error_data()['retry_at'] : null;
			return new Reply( 0, array(), $this->shown( $answer->get_error_message() ), $retry_at );
		}
		$status = (int) wp_remote_retrieve_response_code( $answer );
		$json   = json_decode( wp_remote_retrieve_body( $answer ), true );
		$type   = (string) wp_remote_retrieve_header( $answer, 'content-type' );
		$json   = is_array( $json ) && str_starts_with( $type, 'application/json' ) ? $json : array();
		return new Reply( $status, $json, $this->problem( $status, $json, $answer ), 429 === $status ? Pacing::retry_at( $answer ) : null );
	}

	/**
	 * Describes an answer that is not the wanted one.
	 *
	 * @param int   $status The status.
	 * @param array $json   The JSON object of the answer.
	 * @param array $answer The answer.
	 */
	private function problem( int $status, array $json, array $answer ): string {
		if ( $status >= 300 && $status < 400 ) {
			/* translators: %s: an address */
			return sprintf( __( 'The service redirects to %s. The token is not sent there. If you trust that address, enter it.', 'weir-sync' ), $this->shown( (string) wp_remote_retrieve_header( $answer, 'location' ) ) );
		}
		if ( $status >= 200 && $status < 300 ) {
			return __( 'Something answers at this address, but not as the service does. Please check the address.', 'weir-sync' );
		}
		$message = $json['error']['message'] ?? '';
		$message = is_string( $message ) ? $this->shown( $message ) : '';
		/* translators: 1: an HTTP status such as 401, 2: the message of the service */
		return trim( sprintf( __( 'The service answered %1$d: %2$s', 'weir-sync' ), $status, $message ), ': ' );
	}

	/**
	 * Returns a message of others on one line, without the token.
	 *
	 * @param string $text A message.
	 */
	public function shown( string $text ): string {
		$text = str_replace( $this->settings->token(), '…', $text );
		$text = Documents::line( $text ); // It is escaped where it is shown.
		return function_exists( 'mb_substr' ) ? mb_substr( $text, 0, self::MAX_MESSAGE ) : substr( $text, 0, self::MAX_MESSAGE );
	}
}
