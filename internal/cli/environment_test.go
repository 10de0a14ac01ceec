package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// program returns a root command with a command that has one flag of each kind.
func program(t *testing.T) (root, cmd *cobra.Command, files *Paths, limit *Number, token *hidden) {
	t.Helper()
	files, limit, token = new(Paths), &Number{Value: 1, Min: 1, Max: 9}, new(hidden)
	root, cmd = &cobra.Command{Use: "prog"}, &cobra.Command{Use: "run", Run: func(*cobra.Command, []string) {}}
	cmd.Flags().Var(files, "file", "files")
	cmd.Flags().Var(limit, "limit-max", "limit")
	cmd.Flags().Var(token, "token", "token")
	cmd.Flags().Bool("once", false, "once")
	NoVariables(cmd, "once")
	root.AddCommand(cmd)
	return root, cmd, files, limit, token
}

// A hidden value accepts nothing and may not be shown.
type hidden struct{}

func (*hidden) Set(string) error     { return errors.New("want another one") }
func (*hidden) String() string       { return "" }
func (*hidden) Type() string         { return "TOKEN" }
func (*hidden) Redact(string) string { return "…" }

func TestAVariableSetsAFlagThatIsNotGiven(t *testing.T) {
	_, cmd, files, limit, _ := program(t)
	if err := cmd.ParseFlags([]string{"--limit-max", "2"}); err != nil {
		t.Fatal(err)
	}
	e := ParseEnvironment([]string{"WEIR_FILE=a,b", "WEIR_LIMIT_MAX=3", "WEIR_ONCE=true", "WEIR_TOKEN=", "OTHER=x=y"})
	if err := e.Apply(cmd); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(*files, []string{"a", "b"}) || limit.Value != 2 || cmd.Flags().Changed("once") || cmd.Flags().Changed("token") {
		t.Errorf("files %q, limit %d, once %v, token %v", *files, limit.Value, cmd.Flags().Changed("once"), cmd.Flags().Changed("token"))
	}
	for flag, want := range map[string]string{"file": "variable WEIR_FILE", "limit-max": "--limit-max"} {
		if got := GivenAs(cmd, flag); got != want || GivenItself(cmd, flag) != (flag == "limit-max") {
			t.Errorf("%s was given as %q, itself %v; want %q", flag, got, GivenItself(cmd, flag), want)
		}
	}
	if e["OTHER"] != "x=y" {
		t.Errorf("OTHER is %q", e["OTHER"])
	}
}

func TestAVariableThatAFlagRejectsIsNamedAndNotItsSecret(t *testing.T) {
	for variable, want := range map[string]string{
		"WEIR_LIMIT_MAX=10":  `variable WEIR_LIMIT_MAX="10": expected a whole number from 1 to 9`,
		"WEIR_TOKEN=hunter2": `variable WEIR_TOKEN="…": want another one`,
	} {
		_, cmd, _, _, _ := program(t)
		err := ParseEnvironment([]string{variable}).Apply(cmd)
		var f *Failure
		if !errors.As(err, &f) || err.Error() != want || f.Exit != Misused || !strings.Contains(f.Hint, "'prog run --help'") {
			t.Errorf("%s: %v, %+v", variable, err, f)
		}
	}
}

func TestAVariableOfNoFlagIsUnknown(t *testing.T) {
	root, _, _, _, _ := program(t)
	e := Environment{"WEIR_FILES": "a", "WEIR_FILE": "a", "WEIR_ONCE": "1", "WEIR_HELP": "1", "PATH": "/bin"}
	if got, want := e.Unknown(root), []string{"WEIR_FILES", "WEIR_HELP", "WEIR_ONCE"}; !slices.Equal(got, want) {
		t.Errorf("unknown are %q, want %q", got, want)
	}
}

func TestTheUserAndPasswordOfAURLAreNotShown(t *testing.T) {
	for value, want := range map[string]string{
		"redis://user:p@ss@10.0.0.1:6379/0": "redis://…@10.0.0.1:6379/0",
		"http://example.com":                "http://example.com",
		"someone@example.com":               "someone@example.com",
		"user:p@ss@10.0.0.1:3000":           "…@10.0.0.1:3000", // a URL whose scheme is missing
	} {
		if got := RedactURL(value); got != want {
			t.Errorf("%q is shown as %q, want %q", value, got, want)
		}
	}
}
