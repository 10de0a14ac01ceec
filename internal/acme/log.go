package acme

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap/zapcore"
)

// A logCore takes the log lines of certmagic, which logs each step, and each failure several times.
// All go to our log for debugging, and one WARN for each name that fails (Manager.failed).
type logCore struct {
	manager *Manager
	fields  []zapcore.Field
}

// Enabled implements zapcore.LevelEnabler.
func (c *logCore) Enabled(level zapcore.Level) bool {
	return level >= zapcore.ErrorLevel || c.manager.log.Enabled(context.Background(), slog.LevelDebug)
}

// With implements zapcore.Core.
func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	return &logCore{c.manager, slices.Concat(c.fields, fields)}
}

// Check implements zapcore.Core.
func (c *logCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c *logCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range slices.Concat(c.fields, fields) {
		f.AddTo(values)
	}
	level := slog.LevelDebug
	if e.Level >= zapcore.ErrorLevel && e.Message == "panic" {
		level = slog.LevelError
	}
	attributes := make([]slog.Attr, 0, len(values.Fields)+1)
	attributes = append(attributes, slog.String("from", e.LoggerName))
	for _, name := range slices.Sorted(maps.Keys(values.Fields)) {
		attributes = append(attributes, slog.Any(name, values.Fields[name]))
	}
	c.manager.log.LogAttrs(context.Background(), level, "certmagic: "+e.Message, attributes...)
	if e.Level >= zapcore.ErrorLevel {
		c.report(e, values.Fields)
	}
	return nil
}

// Sync implements zapcore.Core.
func (c *logCore) Sync() error { return nil }

// report reports a failure that certmagic has no event for, such as a directory that is read-only
// when a certificate is renewed.
func (c *logCore) report(e zapcore.Entry, values map[string]any) {
	switch e.LoggerName {
	case "", "obtain", "renew", "maintenance":
	default:
		return // a single step: another may succeed, and strangers can cause those of handshakes
	}
	reason := fmt.Sprint(values["error"])
	if strings.Contains(reason, context.Canceled.Error()) {
		return // the server ends
	}
	for _, name := range c.manager.options.Names {
		if values["identifier"] == name || strings.HasPrefix(reason, "["+name+"]") {
			c.manager.failed(name, errors.New(reason))
		}
	}
}
