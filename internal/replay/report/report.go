// Package report says what a replay found: as a table for a terminal, and as one HTML document with charts.
package report
