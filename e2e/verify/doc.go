// Package verify holds tests alone: the verifier against servers in other languages, Node and
// nginx.
package verify
