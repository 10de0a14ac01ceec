// Package replay puts the requests of a log through the engine that serves, its clock driven by the log.
package replay
