//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package upstream

// isQuiet cannot tell here: what was closed meanwhile shows when it is used.
func isQuiet(uintptr) bool { return true }
