package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// An environment holds the process's variables by name.
type environment map[string]string

// environ parses variables in the form of os.Environ.
func environ(env []string) environment {
	e := make(environment, len(env))
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		e[name] = value
	}
	return e
}

// variable returns the name of a flag's variable; false for the flags that have none.
func variable(flag string) (string, bool) {
	if flag == "help" || flag == "version" {
		return "", false
	}
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_")), true
}

// noVariable is the annotation of a flag that no variable stands for: what one command is to do to one caller is never left over from
// another shell.
const noVariable = "weir_no_variable"

// withoutVariables says that no variables stand for some flags of cmd.
func withoutVariables(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		must(cmd.Flags().SetAnnotation(name, noVariable, []string{}))
	}
}

// variableOf returns the name of a flag's variable; false for a flag that has none.
func variableOf(f *pflag.Flag) (string, bool) {
	if _, without := f.Annotations[noVariable]; without {
		return "", false
	}
	return variable(f.Name)
}

// fromVariable is the annotation of a flag that its variable has set.
const fromVariable = "weir_variable"

// spelled names a flag the way it was given: as itself or as its variable.
func spelled(cmd *cobra.Command, flag string) string {
	if from := cmd.Flags().Lookup(flag).Annotations[fromVariable]; len(from) > 0 {
		return "variable " + from[0]
	}
	return "--" + flag
}

// apply sets every flag of cmd that was not given from its variable, if that is set and not empty.
func (e environment) apply(cmd *cobra.Command) error {
	var bad error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name, ok := variableOf(f)
		value := e[name]
		if !ok || f.Changed || value == "" || bad != nil {
			return
		}
		if err := setAll(f.Value, value); err != nil {
			bad = misused(
				fmt.Sprintf("correct or unset %s; it stands for --%s, see '%s --help'", name, f.Name, cmd.CommandPath()),
				"variable %s=%q: %w", name, shown(f, value), err)
			return
		}
		f.Changed = true
		f.Annotations = map[string][]string{fromVariable: {name}}
	})
	return bad
}

// strangers returns the variables that look like ours and stand for no flag of any command, sorted.
func (e environment) strangers(root *cobra.Command) []string {
	known := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			name, _ := variableOf(f)
			known[name] = true
		})
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(root)
	var strange []string
	for name := range e {
		if strings.HasPrefix(name, "WEIR_") && !known[name] {
			strange = append(strange, name)
		}
	}
	slices.Sort(strange)
	return strange
}

// setAll gives a repeatable flag each element of a comma-separated list, and any other flag the value as it is.
func setAll(v pflag.Value, value string) error {
	switch v.(type) {
	case *paths, *keyFields, *excludes:
	default:
		return v.Set(value)
	}
	for _, element := range strings.Split(value, ",") {
		if err := v.Set(element); err != nil {
			return err
		}
	}
	return nil
}

// document names each flag's variable in its help.
func document(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if name, ok := variableOf(f); ok {
			f.Usage += " [$" + name + "]"
		}
	})
	for _, c := range cmd.Commands() {
		document(c)
	}
}

// shown is a value that a flag refused, as an error may show it.
func shown(f *pflag.Flag, value string) string {
	if v, ok := f.Value.(interface{ withoutSecrets(string) string }); ok {
		return v.withoutSecrets(value)
	}
	return redacted(value)
}

// redacted hides the user and password of a URL.
func redacted(value string) string {
	scheme, rest, ok := strings.Cut(value, "://")
	at := strings.LastIndexByte(rest, '@')
	if !ok || at < 0 {
		return value
	}
	return scheme + "://…" + rest[at:]
}
