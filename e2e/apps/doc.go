// Package apps holds tests alone: the gateway, with each of its engines, in front of application
// servers of common backends. They show which request an application sees for the request that was
// counted.
package apps
