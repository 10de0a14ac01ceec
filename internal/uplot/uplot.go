// Package uplot embeds the chart library of the project's pages, unchanged and with its licence.
// SOURCE.md gives its version and its origin.
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

// Script is the library's script; it defines the global uPlot.
//
//go:embed uPlot.iife.min.js
var Script string

// Policy returns the beginning of a Content-Security-Policy for a page that contains the library,
// and an inline style and script of its own. It allows these by their hashes, and nothing else.
func Policy(style, script string) string {
	return "default-src 'none'; script-src " + Hash(Script) + " " + Hash(script) + "; style-src " + Hash(Style) + " " + Hash(style)
}

// Hash returns the source expression of an inline text in a Content-Security-Policy.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
