// Package wordpress holds tests alone: the plugin of clients/wordpress in a real WordPress, with
// MariaDB and the real weir serve.
package wordpress
