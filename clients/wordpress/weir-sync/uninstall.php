<?php
/**
 * Removes everything that the plugin has stored, on all sites of a network. Documents that the service has
 * stay there; its operator can delete them.
 *
 * @package WeirSync
 */

defined( 'WP_UNINSTALL_PLUGIN' ) || exit;

require_once __DIR__ . '/includes/autoload.php';

WeirSync\Plugin::on_each_site( true, array( WeirSync\Schema::class, 'remove' ) );
