package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
	reports "github.com/weirlimit/weir/internal/replay/report"
	"github.com/weirlimit/weir/internal/rls/config"
	"github.com/weirlimit/weir/internal/rls/translate"
	"github.com/weirlimit/weir/policyfile"
)

func newPolicyImportEnvoy() *cobra.Command {
	var domain string
	keys := keyMeanings{}
	cmd := &cobra.Command{
		Use:   "envoy FILE",
		Short: "Print a policy for a configuration of envoyproxy/ratelimit",
		Long: `Print a policy for a configuration of envoyproxy/ratelimit, a file or a directory of files.

'weir serve --rls' answers Envoy by such a configuration itself. A policy is for Weir before a backend, or for a proxy
that asks with --forward-auth: there is no descriptor then, so --key says what each key of a descriptor is. A key with
a value becomes part of a route (path, method, host), a key without one is what a window counts by (any key source).
remote_address and masked_remote_address are ip, path is path and method is method.

A request has one limiter, and Envoy counts it in every descriptor. So a window of a wider route is printed for the
narrower ones, too, and a comment in the policy reports that each counts for itself. Rules that a policy cannot say are
reported with their lines, here and in comments, and the exit status is 1.`,
		Example: `  weir policy import envoy config/ > policy.yaml
  weir policy import envoy edge.yaml --domain edge --key user=header:X-User --key route=path`,
		Args: cli.Arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return importEnvoy(cmd, args[0], domain, keys)
		},
	}
	cmd.Flags().StringVar(&domain, "domain", "", "the `NAME` of the domain (default the only one)")
	cmd.Flags().Var(keys, "key", "what a key of descriptors is: KEY=SOURCE, with a key source, path, method or host; repeatable")
	cli.NoVariables(cmd, "domain", "key")
	return cmd
}

// importEnvoy prints the policy of a domain.
func importEnvoy(cmd *cobra.Command, path, domain string, keys keyMeanings) error {
	read, err := config.Read(path, config.Options{Merge: true})
	if err != nil {
		return cli.Fail(err, "FILE is a file, or a directory of files, in the format of envoyproxy/ratelimit: see docs/envoy.md")
	}
	names := read.Names()
	switch {
	case domain == "" && len(names) != 1:
		return cli.UsageError("give --domain, one of "+strings.Join(names, ", "), "%s has %s: a policy is of one", path, cli.Count(len(names), "domain"))
	case domain != "" && !slices.Contains(names, domain):
		return cli.UsageError("give one of "+strings.Join(names, ", "), "--domain %q: %s has no such domain", domain, path)
	}
	meanings := translate.Usual()
	maps.Copy(meanings, keys)
	result := translate.Policy(read, cmp.Or(domain, names[0]), meanings)
	if len(result.Policy.Limiters) > 0 {
		var b bytes.Buffer
		for _, text := range result.Problems {
			fmt.Fprintf(&b, "# Not imported: %s\n", oneLine(text))
		}
		for _, text := range result.Notes {
			fmt.Fprintf(&b, "# %s\n", oneLine(text))
		}
		text := policyfile.Marshal(result.Policy)
		if _, err := policyReader().Parse("the policy", text); err != nil {
			return printProblems(cmd.ErrOrStderr(), err)
		}
		if _, err := io.Copy(cmd.OutOrStdout(), io.MultiReader(&b, bytes.NewReader(text))); err != nil {
			return err
		}
	}
	for _, text := range result.Problems {
		fmt.Fprintf(cmd.ErrOrStderr(), "error: %s\n", reports.Shown(text, 1000))
	}
	if len(result.Problems) > 0 || len(result.Policy.Limiters) == 0 {
		return cli.Fail(fmt.Errorf("%s of %s could not be imported", cli.Count(len(result.Problems), "limit"), path), "")
	}
	return nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// keyMeanings is the value of --key.
type keyMeanings translate.Meanings

func (k keyMeanings) Set(value string) error {
	key, meaning, ok := strings.Cut(value, "=")
	if !ok || key == "" || meaning == "" {
		return fmt.Errorf("expected KEY=SOURCE, such as user=header:X-User or route=path")
	}
	k[key] = meaning
	return nil
}

func (k keyMeanings) String() string {
	var all []string
	for key, meaning := range k {
		all = append(all, key+"="+meaning)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

func (k keyMeanings) Type() string { return "KEY=SOURCE" }
