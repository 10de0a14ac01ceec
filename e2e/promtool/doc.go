// Package promtool holds tests alone: Debian's promtool reads the metrics, and the rules and the
// dashboard of examples/observability.
package promtool
