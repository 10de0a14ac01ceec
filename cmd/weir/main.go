// Command weir is a rate-limiting edge for HTTP APIs.
//
// Without flags, weir serve is the Widget and Bulk-Sync API itself, limited exactly as its contract
// says; with --upstream it protects another backend by the same limits, or by a policy file of the
// operator's own. The other subcommands check and explain policies and manage API tokens. The
// behaviour of each is written down in testdata, as scripts.
package main

import (
	"os"
	"path/filepath"
	_ "time/tzdata" // the zones of calendar windows, for a machine that has none
)

func main() {
	os.Exit(run(arguments(os.Args), os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// arguments returns the arguments of a command line. A program that is called ratelimit, as a link
// in an image can be, serves in place of envoyproxy/ratelimit, which has none.
func arguments(command []string) []string {
	if len(command) == 1 && filepath.Base(command[0]) == "ratelimit" {
		return []string{"serve", "--rls-env"}
	}
	return command[min(len(command), 1):]
}
