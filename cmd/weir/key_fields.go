package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/cli"
)

// A namedValues value is a flag for the values of one kind of key source, such as those of HTTP
// fields, by their names in a policy: header:X-Api-Key. The flag is repeatable, and takes each name
// once.
type namedValues struct {
	row    weir.Source
	values map[string]string
}

// sourceFlags registers a flag for each of sources that has a name after the colon.
func sourceFlags(cmd *cobra.Command, sources []weir.Source) (all []*namedValues) {
	for _, row := range sources {
		if row.Field == "" {
			continue
		}
		v := &namedValues{row, make(map[string]string)}
		cmd.Flags().Var(v, row.Name, row.Counts+"; repeatable")
		cli.NoVariables(cmd, row.Name)
		all = append(all, v)
	}
	return all
}

func (v *namedValues) Set(text string) error {
	source, value, err := admin.ParseValue(v.row, text)
	if err != nil {
		return err
	}
	if _, ok := v.values[source]; ok {
		return fmt.Errorf("%s is given twice", source)
	}
	v.values[source] = value
	return nil
}

// list returns the values as the admin listener reads them.
func (v *namedValues) list() []string {
	var all []string
	for _, source := range slices.Sorted(maps.Keys(v.values)) {
		_, name := weir.SplitSource(source)
		all = append(all, name+"="+v.values[source])
	}
	return all
}

// String returns no value, since a value may be a secret.
func (v *namedValues) String() string { return "" }
func (v *namedValues) Type() string   { return "NAME=VALUE" }

// Redact implements cli.Redacter. A text that is no NAME=VALUE may be a value.
func (v *namedValues) Redact(string) string { return "…" }

// Repeatable makes each of several flags add a value.
func (v *namedValues) Repeatable() {}
