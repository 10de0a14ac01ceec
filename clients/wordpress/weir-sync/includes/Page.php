<?php
/**
 * The settings page.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

/**
 * Settings → Weir Sync: where to send, what, and how far it is.
 */
final class Page {

	private const SLUG       = 'weir-sync';
	private const CAPABILITY = 'manage_options';
	private const SAVE       = 'weir_sync_save';
	private const ACT        = 'weir_sync_act';
	private const PROGRESS   = 'weir_sync_progress';

	/** How many errors are shown. */
	private const ERRORS = 10;

	/**
	 * Registers the hooks.
	 */
	public static function register(): void {
		add_action( 'admin_menu', array( self::class, 'menu' ) );
		add_action( 'admin_post_' . self::SAVE, array( self::class, 'save' ) );
		add_action( 'admin_post_' . self::ACT, array( self::class, 'act' ) );
		add_action( 'wp_ajax_' . self::PROGRESS, array( self::class, 'answer_progress' ) );
		add_filter( 'plugin_action_links_' . plugin_basename( FILE ), array( self::class, 'links' ) );
	}

	/**
	 * Adds the page to the menu.
	 */
	public static function menu(): void {
		$page = add_options_page( 'Weir Sync', 'Weir Sync', self::CAPABILITY, self::SLUG, array( self::class, 'show' ) );
		add_action(
			"load-$page",
			function (): void {
				add_action( 'admin_enqueue_scripts', array( self::class, 'assets' ) );
			}
		);
	}

	/**
	 * Adds a link to the list of plugins.
	 *
	 * @param string[] $links Links.
	 * @return string[]
	 */
	public static function links( array $links ): array {
		return array_merge( array( sprintf( '<a href="%s">%s</a>', esc_url( self::url() ), esc_html__( 'Settings', 'weir-sync' ) ) ), $links );
	}

	/**
	 * Loads the style and the script of the page.
	 */
	public static function assets(): void {
		wp_enqueue_style( 'weir-sync', plugins_url( 'assets/page.css', FILE ), array(), VERSION );
		wp_enqueue_script( 'weir-sync', plugins_url( 'assets/page.js', FILE ), array(), VERSION, true );
	}

	/**
	 * The page's address.
	 *
	 * @param array $query What is added to the query.
	 */
	private static function url( array $query = array() ): string {
		return add_query_arg( array( 'page' => self::SLUG ) + $query, admin_url( 'options-general.php', 'relative' ) );
	}

	/**
	 * Ends the request unless an administrator has sent the page's own form.
	 *
	 * @param string $action The form.
	 */
	private static function check( string $action ): void {
		if ( ! current_user_can( self::CAPABILITY ) ) {
			wp_die( esc_html__( 'You are not allowed to do this.', 'weir-sync' ), '', array( 'response' => 403 ) );
		}
		check_admin_referer( $action );
	}

	/**
	 * Stores the settings that were entered.
	 */
	public static function save(): void {
		self::check( self::SAVE );
		$entered = sanitize_text_field( wp_unslash( $_POST['url'] ?? '' ) ); // phpcs:ignore WordPress.Security.NonceVerification
		$types   = array_map( 'sanitize_key', (array) wp_unslash( $_POST['types'] ?? array() ) ); // phpcs:ignore
		$types   = array_values( array_intersect( $types, array_keys( Settings::possible_types() ) ) );
		$url     = Settings::checked_url( $entered );
		$consent = ! empty( $_POST['consent'] ); // phpcs:ignore WordPress.Security.NonceVerification
		$before  = Settings::load();
		$was     = $before->fingerprint();

		$token   = wp_unslash( $_POST['token'] ?? '' ); // phpcs:ignore
		$token   = is_string( $token ) ? preg_replace( '~^Bearer\s+~i', '', trim( $token ) ) : '';
		if ( '' !== $entered && '' === $url ) {
			self::back( 'address' );
		}
		if ( ! preg_match( '~^[\x21-\x7e]{0,4096}$~D', $token ) ) {
			self::back( 'token' );
		}
		// A stored token is not sent to another server than the one for which it was entered.
		$moved = '' !== $before->url && ! Pacing::is_same_server( $before->url, $url );
		if ( '' !== $token || $moved || ! empty( $_POST['forget'] ) ) { // phpcs:ignore WordPress.Security.NonceVerification
			Settings::save_token( empty( $_POST['forget'] ) ? $token : '' ); // phpcs:ignore WordPress.Security.NonceVerification
		}
		Settings::save( $url, $types, ! $consent ? 0 : ( $before->consent ? $before->consent : time() ) );

		$now = Settings::load();
		if ( $now->is_ready() && ( ! $before->is_ready() || $now->fingerprint() !== $was || $now->types !== $before->types ) ) {
			State::set(
				Runner::STATE,
				array(
					'outcome'  => '',
					'problem'  => '',
					'failures' => 0,
				)
			);
			Scan::begin();
			Schedule::at( time() );
		}
		if ( ! $now->is_ready() ) {
			Schedule::remove();
		}
		self::back( '' !== $url && ( ! $consent || '' === $now->token() ) ? 'consent' : 'saved' );
	}

	/**
	 * Does what a button asks for.
	 */
	public static function act(): void {
		self::check( self::ACT );
		$what = sanitize_key( $_POST['what'] ?? '' ); // phpcs:ignore WordPress.Security.NonceVerification
		if ( ! Settings::load()->is_ready() ) {
			self::back( 'consent' );
		}
		if ( 'all' === $what ) {
			Items::forget( false );
			Scan::begin();
		} elseif ( 'failed' === $what ) {
			Items::retry_failed();
		}
		Schedule::at( time() );
		self::back( 'scheduled' );
	}

	/**
	 * Redirects to the page.
	 *
	 * @param string $notice What it reports.
	 */
	private static function back( string $notice ): void {
		wp_safe_redirect( self::url( array( 'notice' => $notice ) ) );
		exit;
	}

	/**
	 * Answers the page's script with the progress as it is now.
	 */
	public static function answer_progress(): void {
		if ( ! current_user_can( self::CAPABILITY ) || ! check_ajax_referer( self::PROGRESS, false, false ) ) {
			wp_send_json_error( null, 403 );
		}
		ob_start();
		self::show_progress();
		wp_send_json_success( ob_get_clean() );
	}

	/**
	 * Shows the page.
	 */
	public static function show(): void {
		if ( ! current_user_can( self::CAPABILITY ) ) {
			return;
		}
		$settings = Settings::load();
		?>
		<div class="wrap weir-sync">
			<h1>Weir Sync</h1>
			<?php self::show_notice(); ?>
			<p class="weir-sync-lead"><?php esc_html_e( 'Keeps a workspace of your Weir service in step with this site, so that it can answer questions from your pages.', 'weir-sync' ); ?></p>
			<div class="weir-sync-columns">
				<form class="weir-sync-card" method="post" action="<?php echo esc_url( admin_url( 'admin-post.php' ) ); ?>">
					<input type="hidden" name="action" value="<?php echo esc_attr( self::SAVE ); ?>">
					<?php
					wp_nonce_field( self::SAVE );
					self::show_connection( $settings );
					self::show_what( $settings );
					submit_button( __( 'Save', 'weir-sync' ) );
					?>
				</form>
				<div>
					<div class="weir-sync-card" id="weir-sync-progress" data-url="<?php echo esc_url( admin_url( 'admin-ajax.php' ) ); ?>" data-action="<?php echo esc_attr( self::PROGRESS ); ?>" data-nonce="<?php echo esc_attr( wp_create_nonce( self::PROGRESS ) ); ?>">
						<?php self::show_progress(); ?>
					</div>
					<?php self::show_buttons( $settings ); ?>
				</div>
			</div>
		</div>
		<?php
	}

	/**
	 * Shows what the last form did.
	 */
	private static function show_notice(): void {
		$notices = array(
			'saved'     => array( 'success', __( 'The settings are saved.', 'weir-sync' ) ),
			'scheduled' => array( 'success', __( 'It is scheduled and begins soon.', 'weir-sync' ) ),
			'consent'   => array( 'warning', __( 'Nothing is sent until there is an address and a token, and you have agreed.', 'weir-sync' ) ),
			'token'     => array( 'error', __( 'This is not a token: a token has no spaces and only ASCII characters. Nothing was changed.', 'weir-sync' ) ),
			'address'   => array( 'error', __( 'This is not an address that can be used: it must begin with https:// and have no user name or query.', 'weir-sync' ) ),
		);
		$notice  = $notices[ sanitize_key( $_GET['notice'] ?? '' ) ] ?? null; // phpcs:ignore WordPress.Security.NonceVerification
		if ( $notice ) {
			printf( '<div class="notice notice-%s is-dismissible"><p>%s</p></div>', esc_attr( $notice[0] ), esc_html( $notice[1] ) );
		}
	}

	/**
	 * Shows the address and the token. The token is never printed, only its last characters.
	 *
	 * @param Settings $settings The settings.
	 */
	private static function show_connection( Settings $settings ): void {
		$token = $settings->token();
		$end   = strlen( $token ) > 12 ? substr( $token, -4 ) : '';
		?>
		<h2><?php esc_html_e( 'Service', 'weir-sync' ); ?></h2>
		<p>
			<label for="weir-sync-url"><?php esc_html_e( 'Address', 'weir-sync' ); ?></label>
			<input type="url" id="weir-sync-url" name="url" dir="ltr" class="large-text code" placeholder="https://api.example.com" value="<?php echo esc_attr( $settings->url ); ?>">
		</p>
		<p>
			<label for="weir-sync-token"><?php esc_html_e( 'Workspace token', 'weir-sync' ); ?></label>
			<?php if ( Settings::has_constant() ) : ?>
				<?php /* translators: %s: a file name */ ?>
				<span class="description"><?php echo esc_html( sprintf( __( 'The token is set in %s.', 'weir-sync' ), 'wp-config.php' ) ); ?></span>
			<?php else : ?>
				<input type="password" id="weir-sync-token" name="token" dir="ltr" class="large-text code" autocomplete="off" placeholder="<?php echo esc_attr( '' === $token ? '' : '••••••••' . $end ); ?>" aria-describedby="weir-sync-token-note">
				<span class="description" id="weir-sync-token-note">
					<?php echo esc_html( '' === $token ? __( 'The operator of the service gives it to you.', 'weir-sync' ) : __( 'A token is stored. Leave this empty to keep it.', 'weir-sync' ) ); ?>
				</span>
				<?php if ( '' !== $token ) : ?>
					<label class="weir-sync-choice"><input type="checkbox" name="forget" value="1"> <?php esc_html_e( 'Remove the token', 'weir-sync' ); ?></label>
				<?php endif; ?>
			<?php endif; ?>
		</p>
		<?php
	}

	/**
	 * Shows what is sent and why, and the consent.
	 *
	 * @param Settings $settings The settings.
	 */
	private static function show_what( Settings $settings ): void {
		?>
		<h2><?php esc_html_e( 'What is sent', 'weir-sync' ); ?></h2>
		<p><?php esc_html_e( 'Of each published post of the types below: its title, its address, and its text as a visitor sees it who is not logged in. The service stores them to answer questions from them.', 'weir-sync' ); ?></p>
		<p><?php esc_html_e( 'Drafts, private posts, posts with a password, comments, and anything about your users or visitors are never sent. If a post is no longer public, it is deleted from the service.', 'weir-sync' ); ?></p>
		<fieldset>
			<legend class="screen-reader-text"><?php esc_html_e( 'Types of posts', 'weir-sync' ); ?></legend>
			<?php foreach ( Settings::possible_types() as $name => $label ) : ?>
				<label class="weir-sync-choice"><input type="checkbox" name="types[]" value="<?php echo esc_attr( $name ); ?>" <?php checked( in_array( $name, $settings->types, true ) ); ?>> <?php echo esc_html( $label ); ?></label>
			<?php endforeach; ?>
		</fieldset>
		<p class="weir-sync-consent">
			<label><input type="checkbox" name="consent" value="1" <?php checked( $settings->consent > 0 ); ?>> <?php esc_html_e( 'I agree that this site sends these posts to the service at this address, now and whenever they change.', 'weir-sync' ); ?></label>
		</p>
		<?php
	}

	/**
	 * Shows the progress, the budget and the last errors.
	 */
	private static function show_progress(): void {
		$progress = Progress::now();
		?>
		<h2><?php esc_html_e( 'Progress', 'weir-sync' ); ?></h2>
		<?php
		$parts = array(
			'sent'    => array( $progress->sent, __( 'sent', 'weir-sync' ) ),
			'waiting' => array( $progress->waiting, __( 'waiting', 'weir-sync' ) ),
			'failed'  => array( $progress->failed, __( 'failed', 'weir-sync' ) ),
		);
		self::show_bar( $parts );
		?>
		<p class="weir-sync-state" role="status"><?php echo esc_html( self::state_text( $progress ) ); ?></p>
		<h2><?php esc_html_e( 'Budget', 'weir-sync' ); ?></h2>
		<?php
		self::show_budget();
		self::show_errors( $progress );
	}

	/**
	 * Shows a bar and its legend.
	 *
	 * @param array $parts Figures and labels by name.
	 */
	private static function show_bar( array $parts ): void {
		echo '<div class="weir-sync-bar" aria-hidden="true">';
		foreach ( $parts as $name => list( $number ) ) {
			if ( $number > 0 ) {
				printf( '<span class="weir-sync-%s" style="flex-grow:%d"></span>', esc_attr( $name ), (int) $number );
			}
		}
		echo '</div><ul class="weir-sync-legend">';
		foreach ( $parts as $name => list( $number, $label ) ) {
			printf( '<li><span class="weir-sync-dot weir-sync-%s" aria-hidden="true"></span><strong>%s</strong> %s</li>', esc_attr( $name ), esc_html( number_format_i18n( $number ) ), esc_html( $label ) );
		}
		echo '</ul>';
	}

	/**
	 * Describes what happens next.
	 *
	 * @param Progress $progress The figures.
	 */
	private static function state_text( Progress $progress ): string {
		if ( ! Settings::load()->is_ready() ) {
			return __( 'Nothing is sent until there is an address and a token, and you have agreed.', 'weir-sync' );
		}
		if ( null === $progress->next ) {
			return 0 === $progress->waiting ? __( 'Everything is in step.', 'weir-sync' ) : __( 'The next run is not scheduled yet.', 'weir-sync' );
		}
		if ( $progress->next <= time() ) {
			return __( 'The next run begins with the next visit of this site.', 'weir-sync' );
		}
		/* translators: %s: a time of day */
		return sprintf( __( 'The next run begins at %s.', 'weir-sync' ), Pacing::clock( $progress->next ) );
	}

	/**
	 * Shows what is left of the budget.
	 */
	private static function show_budget(): void {
		$budget = Pacing::budget();
		if ( ! $budget ) {
			printf( '<p>%s</p>', esc_html__( 'Not known yet: the service reports it with its first answer.', 'weir-sync' ) );
			return;
		}
		self::show_bar(
			array(
				'left' => array( $budget['remaining'], __( 'requests left', 'weir-sync' ) ),
				'used' => array( max( 0, $budget['limit'] - $budget['remaining'] ), __( 'used', 'weir-sync' ) ),
			)
		);
		if ( $budget['restored'] > time() ) {
			/* translators: 1: a number of requests, 2: a time of day */
			printf( '<p>%s</p>', esc_html( sprintf( __( 'All %1$s are back at %2$s.', 'weir-sync' ), number_format_i18n( $budget['limit'] ), Pacing::clock( $budget['restored'] ) ) ) );
		}
	}

	/**
	 * Shows the last errors.
	 *
	 * @param Progress $progress The figures.
	 */
	private static function show_errors( Progress $progress ): void {
		$rows    = Items::errors( self::ERRORS );
		$problem = Outcome::ERROR === $progress->outcome ? $progress->problem : '';
		if ( ! $rows && '' === $problem ) {
			return;
		}
		printf( '<h2>%s</h2>', esc_html__( 'Last errors', 'weir-sync' ) );
		if ( '' !== $problem ) {
			printf( '<div class="notice notice-error inline"><p>%s</p></div>', esc_html( $problem ) );
		}
		if ( ! $rows ) {
			return;
		}
		echo '<table class="widefat striped"><tbody>';
		foreach ( $rows as $row ) {
			$title = get_the_title( (int) $row->object_id );
			$title = '' === $title ? '#' . $row->object_id : $title;
			$link  = get_edit_post_link( (int) $row->object_id );
			echo '<tr><td>';
			echo $link ? sprintf( '<a href="%s">%s</a>', esc_url( $link ), esc_html( $title ) ) : esc_html( $title ); // phpcs:ignore WordPress.Security.EscapeOutput
			printf( '</td><td>%s</td></tr>', esc_html( $row->error ) );
		}
		echo '</tbody></table>';
	}

	/**
	 * Shows the buttons.
	 *
	 * @param Settings $settings The settings.
	 */
	private static function show_buttons( Settings $settings ): void {
		if ( ! $settings->is_ready() ) {
			return;
		}
		?>
		<form class="weir-sync-buttons" method="post" action="<?php echo esc_url( admin_url( 'admin-post.php' ) ); ?>">
			<input type="hidden" name="action" value="<?php echo esc_attr( self::ACT ); ?>">
			<?php wp_nonce_field( self::ACT ); ?>
			<button class="button" name="what" value="now"><?php esc_html_e( 'Sync now', 'weir-sync' ); ?></button>
			<button class="button" name="what" value="all"><?php esc_html_e( 'Send everything again', 'weir-sync' ); ?></button>
			<button class="button" name="what" value="failed"><?php esc_html_e( 'Retry what failed', 'weir-sync' ); ?></button>
		</form>
		<?php
	}
}
