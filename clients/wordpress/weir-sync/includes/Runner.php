<?php
/**
 * One run of the sync.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * Sends what waits, batch after batch, until nothing waits, the budget is spent or its time is over. It
 * never sleeps.
 */
final class Runner {

	private const MAX_ITEMS = 500;
	private const MAX_BYTES = 8388608;
	private const MIN_BYTES = 262144;

	/** How many documents a batch has at least after the service was away. */
	private const LEAST_ITEMS = 50;

	/** How many posts are read from the database at a time. */
	private const PART = 50;

	/** After so many attempts a post has failed. */
	private const MAX_ATTEMPTS = 5;

	/** The pause after a failed run, in seconds; doubled after each. */
	private const PAUSE     = 60;
	private const MAX_PAUSE = HOUR_IN_SECONDS;

	/** The state: workspace, problems, and how large a batch may be. */
	public const STATE = 'status';

	/**
	 * The settings.
	 *
	 * @var Settings
	 */
	private readonly Settings $settings;

	/**
	 * The service.
	 *
	 * @var Api
	 */
	private readonly Api $api;

	/**
	 * The lock that this run holds.
	 *
	 * @var Lock
	 */
	private Lock $lock;

	/**
	 * When the lock was renewed, as returned by microtime.
	 *
	 * @var float
	 */
	private float $renewed = 0;

	/**
	 * When this run ends, as returned by microtime.
	 *
	 * @var float
	 */
	private readonly float $end;

	/**
	 * The row whose document is being made, for the case that PHP ends there.
	 *
	 * @var object|null
	 */
	private ?object $making = null;

	/**
	 * How many bytes a batch may have.
	 *
	 * @var int
	 */
	private int $max_bytes;

	/**
	 * How many documents a batch may have.
	 *
	 * @var int
	 */
	private int $max_items;

	/**
	 * A run.
	 *
	 * @param float         $seconds How long it may take.
	 * @param callable|null $report  Is called with the number of documents of each acknowledged batch.
	 */
	public function __construct( float $seconds, private $report = null ) {
		$this->settings = Settings::from_database();
		$this->api      = new Api( $this->settings );
		$this->end      = microtime( true ) + $seconds;
	}

	/**
	 * A run that was scheduled: bounded in time, as it may be part of a visitor's request. It schedules the
	 * next one.
	 */
	public static function run_scheduled(): void {
		$max  = (int) ini_get( 'max_execution_time' );
		$used = microtime( true ) - (float) ( $_SERVER['REQUEST_TIME_FLOAT'] ?? microtime( true ) ); // By other plugins' events.
		/**
		 * Filters how many seconds a scheduled run may take.
		 *
		 * @param float $seconds The time.
		 */
		$seconds = (float) apply_filters( 'weir_sync_seconds', $max > 0 ? min( 20, max( 0, $max - $used ) / 2 ) : 20 );
		try {
			( new self( $seconds ) )->run();
		} catch ( \RuntimeException $e ) { // The database fails. Events of other plugins may follow in this process.
			if ( Settings::from_database()->is_ready() ) {
				Schedule::at( time() + Lock::SECONDS );
			}
			trigger_error( esc_html( $e->getMessage() ), E_USER_WARNING ); // phpcs:ignore
		}
	}

	/**
	 * Runs, and schedules the next run.
	 */
	public function run(): Outcome {
		if ( ! $this->settings->is_ready() ) {
			return new Outcome( Outcome::OFF, null, __( 'The settings are not complete.', 'weir-sync' ) );
		}
		$lock = Lock::take();
		if ( null === $lock ) {
			Schedule::at( time() + Lock::SECONDS );
			return self::busy();
		}
		$this->lock = $lock;
		// If this process is killed, the next run continues.
		Schedule::at( time() + Lock::SECONDS + 1 );
		register_shutdown_function( array( $this, 'shut_down' ) );
		try {
			$outcome = $this->send_all();
			$this->note( $outcome );
		} finally {
			$lock->release();
		}
		$this->schedule( $outcome );
		return $outcome;
	}

	/**
	 * Schedules the run after this one.
	 *
	 * @param Outcome $outcome How this one ended.
	 */
	private function schedule( Outcome $outcome ): void {
		Schedule::clear();
		if ( ! Settings::from_database()->is_ready() ) {
			return; // The plugin was switched off or deleted meanwhile.
		}
		// Looked at after the clearing: a change that came before it has lost its event.
		$due = Items::due();
		if ( null === $due && null === $outcome->again ) {
			return;
		}
		Schedule::at( max( $outcome->again ?? 0, $due ?? 0, time() ) );
	}

	/**
	 * Sends batches.
	 */
	private function send_all(): Outcome {
		$status          = State::get( self::STATE );
		$this->max_bytes = max( 1, (int) ( $status['max_bytes'] ?? self::MAX_BYTES ) );
		$this->max_items = max( 1, (int) ( $status['max_items'] ?? self::MAX_ITEMS ) );

		if ( Outcome::BUDGET === ( $status['outcome'] ?? '' ) && self::is_soon( (int) $status['again'] ) ) {
			return new Outcome( Outcome::BUDGET, (int) $status['again'], $status['problem'] ); // Nothing is prepared in vain.
		}
		$problem = $this->confirm( $status );
		if ( $problem ) {
			return $problem;
		}
		for ( $batches = 0; true; ++$batches ) {
			if ( $batches > 0 && microtime( true ) >= $this->end ) { // One at least, or a slow site would never finish.
				return new Outcome( Outcome::TIME, time() );
			}
			if ( ! $this->renew() ) {
				return self::busy();
			}
			// phpcs:ignore Universal.Operators.StrictComparisons -- two objects with the same values
			if ( $this->settings != Settings::from_database() ) {
				return new Outcome( Outcome::TIME, time() ); // The next run has the new settings, if it may run at all.
			}
			$rows = Items::next( $this->max_items );
			if ( count( $rows ) < $this->max_items && Scan::step( $this->settings ) ) {
				continue;
			}
			if ( array() === $rows ) {
				return new Outcome( Outcome::DONE, Items::due() );
			}
			$outcome = $this->send_rows( $rows );
			if ( $outcome ) {
				return $outcome;
			}
		}
	}

	/**
	 * Asks the service whose token this is, once for each address and token. If the workspace is the first or
	 * another one, all documents are sent to it.
	 *
	 * @param array $status The state of earlier runs.
	 * @return Outcome|null Why the run ends, or null.
	 */
	private function confirm( array $status ): ?Outcome {
		$fingerprint = $this->settings->fingerprint();
		if ( ( $status['confirmed'] ?? '' ) === $fingerprint ) {
			return null;
		}
		$reply     = $this->api->send( 'GET', 'status' );
		$workspace = $reply->body['workspace'] ?? null;
		if ( 200 !== $reply->status || ! is_string( $workspace ) ) {
			return $this->unusable( $reply );
		}
		$where = array( $this->settings->url, $workspace );
		if ( ( $status['where'] ?? null ) !== $where ) {
			if ( isset( $status['where'] ) ) {
				Items::forget( true );
			}
			Scan::begin();
		}
		State::set(
			self::STATE,
			array(
				'confirmed' => $fingerprint,
				'where'     => $where,
			)
		);
		return null;
	}

	/**
	 * Sends rows: deletions first.
	 *
	 * @param object[] $rows Rows that wait.
	 * @return Outcome|null Why the run ends, or null.
	 */
	private function send_rows( array $rows ): ?Outcome {
		list( $hidden, $documents ) = $this->documents( $rows );
		if ( $hidden ) {
			$items   = array_map( fn( object $row ): string => wp_json_encode( array( 'id' => Documents::id( (int) $row->object_id ) ) ), $hidden );
			$outcome = $this->send_batch( 'DELETE', $hidden, $items );
			if ( $outcome ) {
				return $outcome;
			}
		}
		if ( $documents ) {
			return $this->send_batch( 'PUT', array_column( $documents, 0 ), array_column( $documents, 1 ) );
		}
		return null;
	}

	/**
	 * Makes the documents of rows, as many as fit into a batch and as there is time for. Rows whose posts are
	 * as they were sent are settled.
	 *
	 * @param object[] $rows Rows that wait.
	 * @return array{object[], array} Rows of posts that are not public and were sent, and pairs of a row and its JSON.
	 */
	private function documents( array $rows ): array {
		$hidden    = array();
		$documents = array();
		$bytes     = strlen( '{"items":[]}' );
		$max_bytes = $this->max_batch_bytes();
		$first     = $rows[0];
		foreach ( array_chunk( $rows, self::PART ) as $part ) {
			$posts = Documents::posts( array_column( $part, 'object_id' ) );
			foreach ( $part as $row ) {
				// Rows that need no document may take long, too. One row at least, or a slow site would never finish.
				if ( $row !== $first && ( microtime( true ) >= $this->end || ! $this->renew() ) ) {
					break 2;
				}
				$post = $posts[ (int) $row->object_id ] ?? null;
				if ( ! $post || ! Documents::is_public( $post, $this->settings ) ) {
					if ( $row->present ) {
						$hidden[] = $row;
					} else {
						Items::drop( $row );
					}
					continue;
				}
				$json = $this->document( $row, $post );
				if ( null === $json ) {
					continue;
				}
				if ( self::digest( $json ) === $row->digest ) {
					Items::unchanged( $row );
					continue;
				}
				$bytes += strlen( $json ) + 1;
				if ( $documents && $bytes > $max_bytes ) {
					break 2;
				}
				$documents[] = array( $row, $json );
			}
			self::free_memory();
		}
		return array( $hidden, $documents );
	}

	/**
	 * Makes the document of a post; null if that fails, which is then recorded. If earlier runs were killed,
	 * each attempt is counted beforehand, so that a post that ends PHP does not do so forever. Only the post at
	 * which PHP ends keeps its count, not those that were made before it.
	 *
	 * @param object   $row  A row.
	 * @param \WP_Post $post Its post.
	 */
	private function document( object $row, \WP_Post $post ): ?string {
		if ( $this->lock->crashes > 0 ) {
			if ( $row->attempts >= self::MAX_ATTEMPTS ) {
				Items::fail( $post->ID, (int) $row->version, __( 'PHP ended several times while this post was made into a document.', 'weir-sync' ) );
				return null;
			}
			Items::attempt( $post->ID );
		}
		$this->making = $row;
		try {
			$json = wp_json_encode( Documents::of( $post ), JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE );
			if ( false !== $json ) {
				return $json;
			}
			$reason = json_last_error_msg();
		} catch ( \Throwable $e ) { // Shortcodes and blocks of other plugins run here.
			$reason = $e->getMessage();
		} finally {
			$this->making = null; // Not reached if PHP ends.
			if ( $this->lock->crashes > 0 ) {
				Items::take_back( $post->ID );
			}
		}
		Items::fail( $post->ID, (int) $row->version, Documents::line( $reason ) );
		return null;
	}

	/**
	 * Sends a batch, and smaller ones if the service asks for that.
	 *
	 * @param string   $method PUT or DELETE.
	 * @param object[] $rows   The rows.
	 * @param string[] $items  The JSON of each row.
	 * @return Outcome|null Why the run ends, or null.
	 */
	private function send_batch( string $method, array $rows, array $items ): ?Outcome {
		$digests = array();
		if ( 'PUT' === $method ) {
			foreach ( $rows as $i => $row ) {
				$digests[ $row->object_id ] = self::digest( $items[ $i ] );
			}
		}
		// Requests may take as long as half of the lock's time each.
		if ( ! $this->lock->renew() ) {
			return self::busy();
		}
		Items::claim( $rows, $digests );
		$body  = '{"items":[' . implode( ',', $items ) . ']}';
		$reply = $this->api->send( $method, 'documents', $body );
		if ( $reply->acknowledges( $method, count( $rows ) ) ) {
			$ids = array_column( $rows, 'object_id' );
			'PUT' === $method ? Items::stored( $ids ) : Items::deleted( $ids );
			$this->grow();
			if ( $this->report ) {
				( $this->report )( $method, count( $rows ) );
			}
			return null;
		}
		if ( 413 === $reply->status ) {
			return $this->send_halves( $method, $rows, $items, strlen( $body ), $reply );
		}
		if ( 422 === $reply->status ) {
			return $this->send_rest( $method, $rows, $items, $reply );
		}
		if ( 507 !== $reply->status && null === $reply->retry_at && ( $reply->status >= 500 || 0 === $reply->status ) ) {
			$this->shrink( $rows, $reply );
		}
		return $this->unusable( $reply );
	}

	/**
	 * Sends the halves of a batch that is too large. Later batches are smaller.
	 *
	 * @param string   $method PUT or DELETE.
	 * @param object[] $rows   The rows.
	 * @param string[] $items  The JSON of each row.
	 * @param int      $bytes  How large the batch was.
	 * @param Reply    $reply  The answer.
	 */
	private function send_halves( string $method, array $rows, array $items, int $bytes, Reply $reply ): ?Outcome {
		if ( 1 === count( $rows ) ) {
			Items::fail( (int) $rows[0]->object_id, (int) $rows[0]->version, $reply->problem );
			return null;
		}
		$this->max_bytes = min( $this->max_bytes, intdiv( $bytes, 2 ) );
		State::set( self::STATE, array( 'max_bytes' => $this->max_bytes ) );
		$middle = intdiv( count( $rows ), 2 );
		return $this->send_batch( $method, array_slice( $rows, 0, $middle ), array_slice( $items, 0, $middle ) )
			?? $this->send_batch( $method, array_slice( $rows, $middle ), array_slice( $items, $middle ) );
	}

	/**
	 * Sends a batch again without the documents that the service has refused.
	 *
	 * @param string   $method PUT or DELETE.
	 * @param object[] $rows   The rows.
	 * @param string[] $items  The JSON of each row.
	 * @param Reply    $reply  The answer.
	 */
	private function send_rest( string $method, array $rows, array $items, Reply $reply ): ?Outcome {
		$reasons = $reply->refused_items( count( $rows ) );
		if ( array() === $reasons ) {
			return $this->unusable( $reply );
		}
		foreach ( $reasons as $i => $reason ) {
			Items::fail( (int) $rows[ $i ]->object_id, (int) $rows[ $i ]->version, $this->api->shown( $reason ) );
			unset( $rows[ $i ], $items[ $i ] );
		}
		return $rows ? $this->send_batch( $method, array_values( $rows ), array_values( $items ) ) : null;
	}

	/**
	 * Handles a batch that the service could not process: the next one is smaller. With 500, one document may
	 * be the cause. If it fails alone while the service is well, it is put behind the others, and has failed
	 * after several attempts.
	 *
	 * @param object[] $rows  The rows.
	 * @param Reply    $reply The answer.
	 */
	private function shrink( array $rows, Reply $reply ): void {
		$least = 500 === $reply->status ? 1 : self::LEAST_ITEMS;
		if ( count( $rows ) > $least ) {
			$this->max_items = max( $least, intdiv( count( $rows ), 2 ) );
			State::set( self::STATE, array( 'max_items' => $this->max_items ) );
			return;
		}
		if ( 500 !== $reply->status || 200 !== $this->api->send( 'GET', 'status' )->status ) {
			return;
		}
		$id = (int) $rows[0]->object_id;
		if ( $rows[0]->attempts + 1 >= self::MAX_ATTEMPTS ) {
			Items::fail( $id, (int) $rows[0]->version, $reply->problem );
			return;
		}
		Items::attempt( $id, time() + 10 * MINUTE_IN_SECONDS, $reply->problem );
	}

	/**
	 * Makes batches larger again after one was acknowledged.
	 */
	private function grow(): void {
		if ( $this->max_items < self::MAX_ITEMS ) {
			$this->max_items = min( self::MAX_ITEMS, $this->max_items * 2 );
			State::set( self::STATE, array( 'max_items' => $this->max_items ) );
		}
	}

	/**
	 * Returns the outcome for an answer after which the run cannot go on.
	 *
	 * @param Reply $reply The answer.
	 */
	private function unusable( Reply $reply ): Outcome {
		if ( null !== $reply->retry_at ) {
			// A little later than asked for, so that many sites do not come in the same moment.
			return new Outcome( Outcome::BUDGET, $reply->retry_at + wp_rand( 0, 2 ), $reply->problem );
		}
		$failures = (int) ( State::get( self::STATE )['failures'] ?? 0 );
		return new Outcome( Outcome::ERROR, time() + min( self::MAX_PAUSE, self::PAUSE << min( $failures, 6 ) ), $reply->problem );
	}

	/**
	 * The outcome of a run that does not hold the lock.
	 */
	private static function busy(): Outcome {
		return new Outcome( Outcome::BUSY, time() + Lock::SECONDS, __( 'Another run is under way.', 'weir-sync' ) );
	}

	/**
	 * Records how the run ended, for the settings page.
	 *
	 * @param Outcome $outcome How it ended.
	 */
	private function note( Outcome $outcome ): void {
		State::change(
			self::STATE,
			function ( array $status ) use ( $outcome ): array {
				$status['ran']      = time();
				$status['again']    = $outcome->again;
				$status['outcome']  = $outcome->kind;
				$status['problem']  = $outcome->problem;
				$status['failures'] = Outcome::ERROR === $outcome->kind ? ( $status['failures'] ?? 0 ) + 1 : 0;
				return $status;
			}
		);
	}

	/**
	 * Returns when the next run makes sense, in Unix seconds: now, or after the pause that the last one has begun.
	 */
	public static function resumes(): int {
		$status = State::get( self::STATE );
		$again  = (int) ( $status['again'] ?? 0 );
		$paused = in_array( $status['outcome'] ?? '', array( Outcome::BUDGET, Outcome::ERROR ), true ) && self::is_soon( $again );
		return $paused ? $again : time();
	}

	/**
	 * Whether a time is in the future, and not so far away that the clock must have been set.
	 *
	 * @param int $time Unix time.
	 */
	private static function is_soon( int $time ): bool {
		return $time > time() && $time < time() + DAY_IN_SECONDS;
	}

	/**
	 * Renews the lock every few seconds.
	 *
	 * @return bool Whether this run still holds it.
	 */
	private function renew(): bool {
		if ( microtime( true ) - $this->renewed < Lock::SECONDS / 12 ) {
			return true;
		}
		$this->renewed = microtime( true );
		return $this->lock->renew();
	}

	/**
	 * Records the post at which PHP ended, if it did: it would end there again. If it was out of time, an earlier
	 * post or another plugin may have used it up, so that post is tried again later.
	 */
	public function shut_down(): void {
		if ( ! $this->making || connection_aborted() ) {
			return;
		}
		$id    = (int) $this->making->object_id;
		$error = error_get_last();
		$fatal = $error && ( $error['type'] & ( E_ERROR | E_PARSE | E_COMPILE_ERROR | E_USER_ERROR | E_RECOVERABLE_ERROR ) );
		$text  = Documents::line( 'PHP: ' . ( $fatal ? strtok( $error['message'], "\n" ) : 'exit' ) );
		try {
			if ( str_starts_with( $text, 'PHP: Maximum execution time' ) && $this->making->attempts + 1 < self::MAX_ATTEMPTS ) {
				Items::attempt( $id, time() + 10 * MINUTE_IN_SECONDS, $text );
			} else {
				Items::fail( $id, (int) $this->making->version, $text );
			}
			$this->lock->release();
		} catch ( \RuntimeException $e ) {
			return; // The database is away, which may be why PHP ended. The lock expires.
		}
	}

	/**
	 * How large a batch may be: what the service accepts, and what fits into this process's memory, in which a
	 * batch is several times.
	 */
	private function max_batch_bytes(): int {
		$limit = wp_convert_hr_to_bytes( (string) ini_get( 'memory_limit' ) );
		$room  = $limit > 0 ? intdiv( $limit - memory_get_usage(), 8 ) : self::MAX_BYTES;
		return min( $this->max_bytes, self::MAX_BYTES, max( self::MIN_BYTES, $room ) );
	}

	/**
	 * Identifies a document. The service gets the same JSON as long as the post is the same.
	 *
	 * @param string $json A document.
	 */
	private static function digest( string $json ): string {
		return substr( hash( 'sha256', $json ), 0, 32 );
	}

	/**
	 * Empties the part of the object cache that is in this process's memory.
	 */
	private static function free_memory(): void {
		if ( function_exists( 'wp_cache_supports' ) && wp_cache_supports( 'flush_runtime' ) ) {
			wp_cache_flush_runtime();
		}
	}
}
