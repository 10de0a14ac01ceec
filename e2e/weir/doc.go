// Package weir holds tests alone: the program, built as it is shipped, with real sockets. Scripts
// of its command line are in testdata; the other tests use curl, a browser, nginx, Redis, and
// clients in other languages.
package weir
