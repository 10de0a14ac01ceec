<?php
/**
 * The budget, for all requests of this site to the service.
 *
 * @package WeirSync
 */

namespace WeirSync;

use WeirSync\Pacer\Call;
use WeirSync\Pacer\Pacer;
use WeirSync\Pacer\Pass;
use WeirSync\Pacer\Wait;

defined( 'ABSPATH' ) || exit;

/**
 * Holds requests to the service to its rate limit, whichever plugin sends them through WordPress's HTTP API.
 * A request for which there is no budget is not sent and does not wait: it gets an error with the time at
 * which it can be sent. Requests to other hosts are left alone.
 */
final class Pacing {

	/** The code of that error. Its data are retry_at (Unix time) and retry_after (seconds). */
	public const ERROR = 'weir_rate_limited';

	/** The member of a 429 answer that has the Unix time at which it can be sent again. */
	private const RETRY_AT = 'weir_retry_at';

	/** The paths of the service that have limits. */
	private const PATHS = '~^/(?:v1/wp|api/v1/widget)(?:/|$)~i';

	/**
	 * The pacers of this process, by site.
	 *
	 * @var array<int, Pacer>
	 */
	private static array $pacers = array();

	/**
	 * The requests under way. One can be sent while another is: by a function that is hooked to it.
	 *
	 * @var array<int, array{url: string, method: string, pass: Pass, pacer: Pacer}>
	 */
	private static array $under_way = array();

	/**
	 * Registers the hooks. Others may answer a request before it is sent; then it is not counted.
	 */
	public static function register(): void {
		add_filter( 'pre_http_request', array( self::class, 'before' ), PHP_INT_MAX, 3 );
		add_filter( 'http_response', array( self::class, 'after' ), -PHP_INT_MAX, 3 );
		add_action( 'http_api_debug', array( self::class, 'without_answer' ), 10, 5 );
		add_action( 'requests-requests.before_redirect', array( self::class, 'redirected' ), 10, 5 );
		add_action( 'shutdown', array( self::class, 'give_up' ), PHP_INT_MAX );
	}

	/**
	 * Lets a request go ahead, or answers that there is no budget.
	 *
	 * @param mixed  $preempt What others have answered, or false.
	 * @param array  $args    The request.
	 * @param string $url     Its address.
	 * @return mixed
	 */
	public static function before( $preempt, $args, $url ) {
		$call = false === $preempt ? self::call( $args, $url ) : null;
		if ( ! $call ) {
			return $preempt;
		}
		$pacer  = self::pacer();
		$result = $pacer->admit( $call );
		if ( $result instanceof Wait ) {
			$after = $result->retryAfter();
			$at    = time() + $after;
			return new \WP_Error(
				self::ERROR,
				/* translators: 1: the name of a host, 2: a time of day */
				sprintf( __( 'There is no budget for a request to %1$s now. Try again at %2$s.', 'weir-sync' ), $call->host, self::clock( $at ) ),
				array(
					'status'      => 429,
					'retry_at'    => $at,
					'retry_after' => $after,
				)
			);
		}
		self::$under_way[] = array(
			'url'    => $url,
			'method' => $call->method,
			'pass'   => $result,
			'pacer'  => $pacer,
		);
		return $preempt;
	}

	/**
	 * Reads what an answer reports of the budget.
	 *
	 * @param array  $response The answer.
	 * @param array  $args     The request.
	 * @param string $url      Its address.
	 */
	public static function after( $response, $args, $url ) {
		$sent = self::take( $args, $url );
		if ( ! $sent || ! is_array( $response ) ) {
			return $response;
		}
		$object = isset( $response['http_response'] ) && $response['http_response'] instanceof \WP_HTTP_Requests_Response ? $response['http_response']->get_response_object() : null;
		if ( $object && ! self::is_same_server( $url, (string) $object->url ) ) {
			$sent['pacer']->lost( $sent['pass'] ); // It was redirected, and another server's fields say nothing.
			return $response;
		}
		$status = (int) wp_remote_retrieve_response_code( $response );
		$wait   = $sent['pacer']->answered( $sent['pass'], $status, self::fields( wp_remote_retrieve_headers( $response ) ) );
		if ( $wait ) {
			$response[ self::RETRY_AT ] = time() + $wait->retryAfter();
		}
		return $response;
	}

	/**
	 * Handles a request that has no answer: it failed, or its sender does not wait for one.
	 *
	 * @param array|\WP_Error $response The answer or an error.
	 * @param string          $context  Not used.
	 * @param string          $sender   Not used.
	 * @param array           $args     The request.
	 * @param string          $url      Its address.
	 */
	public static function without_answer( $response, $context, $sender, $args, $url ): void {
		if ( ! is_wp_error( $response ) && ! empty( $args['blocking'] ) ) {
			return; // The filter follows.
		}
		$sent = self::take( $args, $url );
		if ( $sent && is_wp_error( $response ) && 'http_request_not_executed' === $response->get_error_code() ) {
			$sent['pacer']->unsent( $sent['pass'] );
		} elseif ( $sent ) {
			$sent['pacer']->lost( $sent['pass'] );
		}
	}

	/**
	 * Handles requests whose end was not seen, such as those that an exception has ended.
	 */
	public static function give_up(): void {
		foreach ( self::$under_way as $sent ) {
			$sent['pacer']->lost( $sent['pass'] );
		}
		self::$under_way = array();
	}

	/**
	 * Withholds credentials from another server to which the service redirects: WordPress would send them on.
	 *
	 * @param string $location Where to.
	 * @param array  $headers  The fields that are sent there.
	 * @param mixed  $data     Not used.
	 * @param array  $options  Not used.
	 * @param object $response The redirecting answer.
	 */
	public static function redirected( $location, &$headers, $data, $options, $response ): void {
		$from = (string) ( $response->url ?? '' );
		if ( ! self::is_same_server( $from, Settings::load()->url ) || self::is_same_server( $from, (string) $location ) ) {
			return;
		}
		foreach ( array_keys( $headers ) as $name ) {
			if ( in_array( strtolower( $name ), array( 'authorization', 'x-api-key', 'cookie' ), true ) ) {
				unset( $headers[ $name ] );
			}
		}
	}

	/**
	 * Returns when a request that was refused can be sent again, in Unix seconds.
	 *
	 * @param array $response A 429 answer.
	 */
	public static function retry_at( array $response ): int {
		return (int) ( $response[ self::RETRY_AT ] ?? time() + MINUTE_IN_SECONDS );
	}

	/**
	 * Returns a time as people read it, in the site's time zone: with its date if it is not soon.
	 *
	 * @param int $time Unix time.
	 */
	public static function clock( int $time ): string {
		return wp_date( abs( $time - time() ) < DAY_IN_SECONDS / 2 ? 'H:i:s' : 'Y-m-d H:i', $time );
	}

	/**
	 * Returns what is left of this plugin's budget; null if that is not known.
	 *
	 * @return array{limit: int, remaining: int, restored: int}|null
	 */
	public static function budget(): ?array {
		$settings = Settings::load();
		if ( ! $settings->is_ready() ) {
			return null;
		}
		$budget = self::pacer()->budget( new Call( 'PUT', self::server( $settings->url ) . '/v1/wp/documents', array( 'Authorization' => 'Bearer ' . $settings->token() ) ) );
		if ( ! $budget->known ) {
			return null;
		}
		return array(
			'limit'     => $budget->limit,
			'remaining' => $budget->remaining,
			'restored'  => time() + (int) ceil( $budget->restored / 1e9 ),
		);
	}

	/**
	 * Returns a request as the pacer sees it; null if it is not to the service.
	 *
	 * @param array  $args The request.
	 * @param string $url  Its address.
	 */
	private static function call( array $args, string $url ): ?Call {
		$settings = Settings::load();
		if ( '' === $settings->url || ! self::is_same_server( $url, $settings->url ) ) {
			return null;
		}
		// The service may be below a path.
		$path = (string) wp_parse_url( $url, PHP_URL_PATH );
		$base = (string) wp_parse_url( $settings->url, PHP_URL_PATH );
		if ( ! str_starts_with( $path, $base ) || ! preg_match( self::PATHS, substr( $path, strlen( $base ) ) ) ) {
			return null;
		}
		$query   = (string) wp_parse_url( $url, PHP_URL_QUERY );
		$headers = $args['headers'] ?? array();
		$headers = is_array( $headers ) ? $headers : \WP_Http::processHeaders( (string) $headers )['headers'];
		$body    = is_string( $args['body'] ?? null ) ? $args['body'] : '';
		return new Call( strtoupper( $args['method'] ?? 'GET' ), self::server( $url ) . substr( $path, strlen( $base ) ) . ( '' === $query ? '' : "?$query" ), self::fields( $headers ), $body );
	}

	/**
	 * Takes a request from those under way.
	 *
	 * @param array  $args The request.
	 * @param string $url  Its address.
	 */
	private static function take( $args, $url ): ?array {
		foreach ( array_reverse( array_keys( self::$under_way ) ) as $i ) {
			$sent = self::$under_way[ $i ];
			if ( $sent['url'] === $url && strtoupper( $args['method'] ?? 'GET' ) === $sent['method'] ) {
				unset( self::$under_way[ $i ] );
				return $sent;
			}
		}
		return null;
	}

	/**
	 * Returns fields as strings or lists of strings by name.
	 *
	 * @param iterable $fields The fields of a request or of an answer.
	 */
	private static function fields( iterable $fields ): array {
		$result = array();
		foreach ( $fields as $name => $value ) {
			$result[ (string) $name ] = is_array( $value ) ? array_map( 'strval', array_values( $value ) ) : (string) $value;
		}
		return $result;
	}

	/**
	 * The pacer of this site.
	 */
	private static function pacer(): Pacer {
		return self::$pacers[ get_current_blog_id() ] ??= new Pacer( new Store() );
	}

	/**
	 * Whether two addresses are of one server.
	 *
	 * @param string $a An address.
	 * @param string $b An address.
	 */
	public static function is_same_server( string $a, string $b ): bool {
		return '' !== $a && self::server( $a ) === self::server( $b );
	}

	/**
	 * The part of an address that names the server, in one spelling.
	 *
	 * @param string $url An address.
	 */
	private static function server( string $url ): string {
		$parts  = wp_parse_url( $url );
		$scheme = strtolower( $parts['scheme'] ?? '' );
		$port   = $parts['port'] ?? ( 'https' === $scheme ? 443 : 80 );
		return "$scheme://" . strtolower( $parts['host'] ?? '' ) . ":$port";
	}
}
