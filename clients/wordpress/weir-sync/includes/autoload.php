<?php
/**
 * Loads WeirSync\Name from includes/Name.php, and WeirSync\Pacer\Name from pacer/Name.php.
 *
 * @package WeirSync
 */

namespace WeirSync;

defined( 'ABSPATH' ) || exit;

spl_autoload_register(
	function ( string $class_name ): void {
		foreach ( array(
			'WeirSync\\Pacer\\' => '/../pacer/',
			'WeirSync\\'        => '/',
		) as $prefix => $directory ) {
			if ( ! str_starts_with( $class_name, $prefix ) ) {
				continue;
			}
			$file = __DIR__ . $directory . str_replace( '\\', '/', substr( $class_name, strlen( $prefix ) ) ) . '.php';
			if ( is_file( $file ) ) {
				require_once $file;
			}
			return;
		}
	}
);
