// Package js has the files of the client for JavaScript, for pages that the program serves.
package js

import "embed"

// Files are the modules that a browser loads, as they are.
//
//go:embed *.js
var Files embed.FS
