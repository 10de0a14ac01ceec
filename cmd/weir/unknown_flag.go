package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/policyfile"
)

// flagError is [cli.FlagError], which for a flag that does not exist names the closest one of the
// command.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return cli.FlagError(cmd, err)
	}
	name := unknown.GetSpecifiedName()
	if letters := unknown.GetSpecifiedShortnames(); letters != "" { // -listen :80
		name, _, _ = strings.Cut(letters, "=")
	}
	var all []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			all = append(all, "--"+f.Name)
		}
	})
	hint := policyfile.DidYouMean("--"+name, all)
	if meant := otherSettings[name]; hint == "" && cmd.Flags().Lookup(meant) != nil {
		hint = fmt.Sprintf("did you mean %q?", "--"+meant)
	}
	if hint != "" {
		return cli.UsageError(hint, "%w", err)
	}
	return cli.FlagError(cmd, err)
}
