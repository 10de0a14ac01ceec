// Package clients holds tests alone: the callers in other languages, before the real program.
package clients
