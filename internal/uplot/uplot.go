// Package uplot holds the chart library of the project's pages, as its author publishes it, with its licence: SOURCE.md says which
// version, and from where.
package uplot

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
)

// Style is the library's style sheet.
//
//go:embed uPlot.min.css
var Style string

// Script is the library; it defines uPlot.
//
//go:embed uPlot.iife.min.js
var Script string

// Policy begins the content policy of a page that has the library and a style and a script of its own inside: these run, by their
// hashes, and nothing else is loaded or run.
func Policy(style, script string) string {
	return "default-src 'none'; script-src " + Hash(Script) + " " + Hash(script) + "; style-src " + Hash(Style) + " " + Hash(style)
}

// Hash names a text as a content policy does.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
