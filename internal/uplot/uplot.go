// Package uplot holds the chart library of the project's pages, as its author publishes it, with its licence: SOURCE.md says which
// version, and from where.
package uplot

import _ "embed"

// Style is the library's style sheet.
//
//go:embed uPlot.min.css
var Style string

// Script is the library; it defines uPlot.
//
//go:embed uPlot.iife.min.js
var Script string
