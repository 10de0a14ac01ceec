//go:build race_binary || race

package weir

// raced reports whether the binary under test has the race detector: if the tests
// have it, or with the tag race_binary.
const raced = true
