package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/policyimport/envoy"
	"github.com/weirlimit/weir/internal/rls/config"
)

func newPolicyImportEnvoy() *cobra.Command {
	var domain string
	keys := keyMeanings{}
	cmd := &cobra.Command{
		Use:   "envoy FILE|DIR",
		Short: "Print a policy for a configuration of envoyproxy/ratelimit",
		Long: `Print a policy for a configuration of envoyproxy/ratelimit, a file or a directory of files.

'weir serve --rls' answers Envoy by such a configuration itself. A policy is for Weir before a backend, or for a proxy
that asks with --forward-auth: there is no descriptor then, so --key says what each key of a descriptor is. A key with
a value becomes part of a route (path, method, host), a key without one is what a window counts by (any key source).
remote_address and masked_remote_address are ip, path is path and method is method.

A request has one limiter, and Envoy counts it in one descriptor of each list of keys. So a window by another key is
printed for the narrower routes, too, and a comment in the policy reports that each counts for itself.
detailed_metric, value_to_metric and the name of a limit change no limit: each is a comment alone.

` + aboutNotes,
		Example: `  weir policy import envoy config/ > policy.yaml
  weir policy import envoy edge.yaml --domain edge --key user=header:X-User --key route=path`,
		Args: cli.Arguments("FILE|DIR"),
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
	domain = cmp.Or(domain, names[0])
	if unused := envoy.Meanings(keys).Unused(read, domain); len(unused) > 0 {
		return cli.UsageError("give keys as the descriptors spell them", "--key %s=%s: no descriptor of domain %s has the key %q", unused[0], keys[unused[0]], domain, unused[0])
	}
	meanings := envoy.Usual()
	maps.Copy(meanings, keys)
	return printImported(cmd, path, envoy.Policy(read, domain, meanings))
}

// keyMeanings is the value of --key.
type keyMeanings envoy.Meanings

func (k keyMeanings) Set(value string) error {
	key, meaning, ok := strings.Cut(value, "=")
	if !ok || key == "" || meaning == "" {
		return fmt.Errorf("expected KEY=SOURCE, such as user=header:X-User or route=path")
	}
	if err := envoy.Check(meaning); err != nil {
		return err
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
