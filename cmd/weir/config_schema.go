package main

import (
	"encoding/json"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/cli"
)

// configSchema returns a JSON Schema (draft 2020-12) of the files of weir serve --config, for
// editors. It is derived from the flags: it has their names, texts and forms. It accepts every file
// that is valid, and cannot detect each that is not.
func configSchema() []byte {
	cmd := &cobra.Command{}
	defaultServeFlags().register(cmd)
	s := &jsonschema.Schema{
		Schema:        "https://json-schema.org/draft/2020-12/schema",
		Title:         "Configuration of weir serve",
		Description:   "Settings of 'weir serve --config FILE': the flags of weir serve. 'weir serve --config FILE --check' reports every problem.",
		Type:          "object",
		Properties:    make(map[string]*jsonschema.Schema),
		MinProperties: jsonschema.Ptr(1),
		// The schema that nothing matches.
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for _, f := range settingFlags(cmd) {
		one := settingSchema(f)
		_, usage := pflag.UnquoteUsage(f)
		one.Description = strings.ToUpper(usage[:1]) + usage[1:] + "."
		s.Properties[f.Name] = one
		s.PropertyOrder = append(s.PropertyOrder, f.Name)
	}
	out, err := json.MarshalIndent(s, "", "  ")
	cli.Must(err)
	return append(out, '\n')
}

// settingSchema returns the schema of the values of a flag.
func settingSchema(f *pflag.Flag) *jsonschema.Schema {
	text := &jsonschema.Schema{Type: "string"}
	either := func(all ...*jsonschema.Schema) *jsonschema.Schema { return &jsonschema.Schema{AnyOf: all} }
	switch v := f.Value.(type) {
	case *cli.OnOff:
		return &jsonschema.Schema{Enum: []any{true, false, "on", "off", "true", "false", "yes", "no", 1, 0, "1", "0"}}
	case *cli.Choice:
		return &jsonschema.Schema{Type: "string", Enum: words(v.Of)}
	case *cli.Number:
		low, high := float64(v.Min), float64(v.Max)
		return either(&jsonschema.Schema{Type: "integer", Minimum: &low, Maximum: &high}, &jsonschema.Schema{Type: "string", Pattern: "^[+]?[0-9]+$"})
	case *fraction:
		low, high := 0.0, 1.0
		return either(&jsonschema.Schema{Type: "number", Minimum: &low, Maximum: &high}, text)
	case *cli.Size:
		return &jsonschema.Schema{Type: "string", Pattern: sizePattern}
	case *cli.MinRate:
		return &jsonschema.Schema{Type: "string", Pattern: "^off$|" + sizePattern}
	case *cli.Span, *cli.SpanOrOff:
		return either(text, &jsonschema.Schema{Type: "number"})
	case cli.List:
		if cli.NamesFile(f) {
			text.MinLength = jsonschema.Ptr(1)
		}
		list := &jsonschema.Schema{Type: "array", Items: text, MinItems: jsonschema.Ptr(1)}
		if _, sites := v.(*upstreams); !sites {
			return either(text, list)
		}
		bySite := &jsonschema.Schema{Type: "object", AdditionalProperties: either(text, list), MinProperties: jsonschema.Ptr(1)}
		return either(text, list, bySite)
	}
	if cli.NamesFile(f) {
		return &jsonschema.Schema{Type: "string", MinLength: jsonschema.Ptr(1)}
	}
	return text
}

const sizePattern = "^[0-9]+(B|KiB|MiB|GiB)$"

func words(all []string) []any {
	out := make([]any, len(all))
	for i, w := range all {
		out[i] = w
	}
	return out
}
