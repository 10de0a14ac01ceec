package main

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/internal/gateway"
)

// logFields is the value of --access-log-fields: names with commas, or none.
type logFields gateway.LogFields

// Set implements pflag.Value.
func (f *logFields) Set(text string) error {
	if text == "none" {
		*f = 0
		return nil
	}
	var all gateway.LogFields
	for name := range strings.SplitSeq(text, ",") {
		one := gateway.LogFieldOf(strings.TrimSpace(name))
		if one == 0 {
			return fmt.Errorf("%q is not such a field: expected none, or some of %s", name, strings.Join(gateway.LogFieldNames(), ","))
		}
		all |= one
	}
	*f = logFields(all)
	return nil
}

// String implements pflag.Value.
func (f *logFields) String() string {
	var names []string
	for _, name := range gateway.LogFieldNames() {
		if gateway.LogFields(*f)&gateway.LogFieldOf(name) != 0 {
			names = append(names, name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ",")
}

// Type implements pflag.Value.
func (f *logFields) Type() string { return "FIELD,…" }

// Items implements cli.List.
func (f *logFields) Items() []string { return strings.Split(f.String(), ",") }

// Adds implements cli.List.
func (f *logFields) Adds() bool { return false }
