package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// An Environment holds the process's variables by name.
type Environment map[string]string

// ParseEnvironment parses variables in the form of os.Environ.
func ParseEnvironment(env []string) Environment {
	e := make(Environment, len(env))
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		e[name] = value
	}
	return e
}

// prefix is how the variables of flags begin.
const prefix = "WEIR_"

// Variable returns the name of a flag's variable; false for a flag that has none.
func Variable(f *pflag.Flag) (string, bool) {
	_, without := f.Annotations[noVariable]
	if without || f.Name == "help" || f.Name == "version" {
		return "", false
	}
	return prefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")), true
}

// noVariable annotates a flag that has no variable.
const noVariable = "weir_no_variable"

// NoVariables marks flags of cmd that have no variable: what one call does to one caller must
// not be left over from another shell.
func NoVariables(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		Must(cmd.Flags().SetAnnotation(name, noVariable, []string{}))
	}
}

// fromVariable annotates a flag that its variable has set; its value is the variable's name.
const fromVariable = "weir_variable"

// fromFile annotates a flag that a configuration file has set; its value is the file and the line.
const fromFile = "weir_file"

// MarkFromFile records that a line of a configuration file has set a flag.
func MarkFromFile(f *pflag.Flag, file string, line int) {
	f.Changed = true
	annotate(f, fromFile, fmt.Sprintf("%s:%d", file, line))
}

func annotate(f *pflag.Flag, name, value string) {
	if f.Annotations == nil {
		f.Annotations = make(map[string][]string)
	}
	f.Annotations[name] = []string{value}
}

// GivenAs returns the name of a flag as the user gave it: "--policy", "variable WEIR_POLICY" or
// "policy (weir.yaml:3)".
func GivenAs(cmd *cobra.Command, flag string) string {
	f := cmd.Flags().Lookup(flag)
	if from := f.Annotations[fromVariable]; len(from) > 0 {
		return "variable " + from[0]
	}
	if from := f.Annotations[fromFile]; len(from) > 0 {
		return fmt.Sprintf("%s (%s)", flag, from[0])
	}
	return "--" + flag
}

// GivenIn returns in parentheses which of some flags lines of a configuration file have set, or ""
// if none.
func GivenIn(cmd *cobra.Command, flags ...string) string {
	var all []string
	for _, name := range flags {
		if from := cmd.Flags().Lookup(name).Annotations[fromFile]; len(from) > 0 {
			all = append(all, name+" is "+from[0])
		}
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, ", ") + ")"
}

// GivenItself reports whether a flag was given on the command line, not by its variable or a file.
func GivenItself(cmd *cobra.Command, flag string) bool {
	f := cmd.Flags().Lookup(flag)
	return f.Changed && len(f.Annotations[fromVariable])+len(f.Annotations[fromFile]) == 0
}

// Apply sets every flag of cmd that was not given from its variable, if that is not empty.
func (e Environment) Apply(cmd *cobra.Command) error {
	var bad error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name, ok := Variable(f)
		value := e[name]
		if !ok || f.Changed || value == "" || bad != nil {
			return
		}
		if err := setAll(f.Value, value); err != nil {
			hint := fmt.Sprintf("correct or unset %s, the variable of --%s; see '%s --help'", name, f.Name, cmd.CommandPath())
			if of := hintOf(err); of != "" {
				hint = of + "; " + hint
			}
			bad = UsageError(hint,
				"variable %s=%q: %w", name, shown(f, value), err)
			return
		}
		f.Changed = true
		annotate(f, fromVariable, name)
	})
	return bad
}

// SetFrom sets a flag of cmd that was not given, from a variable of another program with a value
// for the flag.
func SetFrom(cmd *cobra.Command, flag, value, variable string) error {
	f := cmd.Flags().Lookup(flag)
	if f.Changed {
		return nil
	}
	if err := f.Value.Set(value); err != nil {
		hint := fmt.Sprintf("correct or unset %s, or give --%s, which overrides it", variable, flag)
		return UsageError(hint, "variable %s, as --%s %q: %w", variable, flag, shown(f, value), err)
	}
	f.Changed = true
	annotate(f, fromVariable, variable)
	return nil
}

// Unknown returns the variables that begin like those of flags and belong to no flag of any
// command, sorted.
func (e Environment) Unknown(root *cobra.Command) []string {
	known := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			name, _ := Variable(f)
			known[name] = true
		})
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(root)
	var unknown []string
	for name := range e {
		if strings.HasPrefix(name, prefix) && !known[name] {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// A Repeatable value is that of a flag that may be given several times, each time with one element.
// Its variable holds the elements with commas between them.
type Repeatable interface {
	pflag.Value
	Repeatable()
}

// A List is the value of a flag with several elements.
type List interface {
	pflag.Value
	Items() []string // the elements; Set of each sets it again
	Adds() bool      // whether Set adds to the elements, and does not replace them
}

// setAll sets a value from a variable.
func setAll(v pflag.Value, value string) error {
	if _, ok := v.(Repeatable); !ok {
		return v.Set(value)
	}
	for _, element := range strings.Split(value, ",") {
		if err := v.Set(element); err != nil {
			return err
		}
	}
	return nil
}

// DocumentVariables adds each flag's variable to its help, for cmd and every command below it.
func DocumentVariables(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if name, ok := Variable(f); ok {
			f.Usage += " [$" + name + "]"
		}
	})
	for _, c := range cmd.Commands() {
		DocumentVariables(c)
	}
}

// A Redacter is a flag value that may hold a secret. Redact returns what an error may show of a
// text that Set has rejected.
type Redacter interface {
	Redact(rejected string) string
}

// ValueProblem returns the texts of an error and its hint about a value that Set of a flag has
// rejected. The hint may be empty.
func ValueProblem(f *pflag.Flag, rejected string, err error) (message, hint string) {
	return fmt.Sprintf("%s %q: %v", f.Name, shown(f, rejected), err), hintOf(err)
}

// shown returns what an error may show of a value that a flag has rejected.
func shown(f *pflag.Flag, rejected string) string {
	if v, ok := f.Value.(Redacter); ok {
		return v.Redact(rejected)
	}
	return RedactURL(rejected)
}

// RedactURL returns a URL without its user and password, even if its scheme is missing; any other
// text as it is.
func RedactURL(value string) string {
	scheme, rest, ok := strings.Cut(value, "://")
	if user, _, _ := strings.Cut(value, "@"); !ok && strings.Contains(user, ":") {
		scheme, rest = "", value
	} else if ok {
		scheme += "://"
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return value
	}
	return scheme + "…" + rest[at:]
}
