package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/policyfile"
)

// configBegins is how a printed configuration begins. At least one setting is no comment, since an
// empty file is an error.
const configBegins = `# Settings of weir serve, as weir serve --print-config prints them. A comment with a value is a default.
`

// writeConfig prints the settings in force as a configuration file. Those that were given are
// settings of the file, with absolute paths; defaults are comments, since some may only be given
// with others. A value that may hold a secret is left out.
func writeConfig(cmd *cobra.Command) error {
	b := bytes.NewBufferString(configBegins)
	for _, f := range settingFlags(cmd) {
		if variable, secret := secretOf(f); secret {
			fmt.Fprintf(b, "# %s: not printed, since it may hold a secret; give it in %s\n", f.Name, variable)
			continue
		}
		lines, err := settingLines(f)
		if err != nil {
			return err
		}
		if !f.Changed && f.Name != "listen" {
			for i, line := range lines {
				lines[i] = "# " + line
			}
		}
		b.WriteString(strings.Join(lines, "\n") + "\n")
	}
	if _, err := cmd.OutOrStdout().Write(b.Bytes()); err != nil {
		return cli.Fail(fmt.Errorf("print the settings: %w", err), "")
	}
	return nil
}

// secretOf reports whether the value of a flag may hold a secret, and returns its variable.
func secretOf(f *pflag.Flag) (variable string, secret bool) {
	variable, _ = cli.Variable(f)
	switch v := f.Value.(type) {
	case *edge.Store:
		return variable, v.HasSecret()
	case *cli.Endpoint:
		// The path of a webhook is often its password.
		return variable, v.URL != nil && (v.RawQuery != "" || f.Name == "events-url" && strings.Trim(v.Path, "/") != "")
	}
	return variable, false
}

// bare matches what needs no quotes as the value of a flag that is no plain text.
var bare = regexp.MustCompile(`^[A-Za-z0-9.]+$`)

// settingLines returns a flag and its value as a setting.
func settingLines(f *pflag.Flag) (lines []string, err error) {
	text := func(value string) string {
		if cli.NamesFile(f) && value != "" && f.Changed && !isNoFile(f, value) {
			value = absolute(value)
		}
		if !utf8.ValidString(value) {
			err = cli.Fail(fmt.Errorf("print --%s %q: a configuration file is UTF-8, and the value is not", f.Name, value), "")
		}
		if bare.MatchString(value) && f.Value.Type() != "string" {
			return value
		}
		return policyfile.Scalar(value)
	}
	list, isList := f.Value.(cli.List)
	switch {
	case !isList && f.Value.String() == "" && !f.Changed:
		lines = []string{f.Name + ":"}
	case !isList:
		lines = []string{f.Name + ": " + text(f.Value.String())}
	case len(list.Items()) == 0:
		lines = []string{f.Name + ":"}
	default:
		if sites, ok := f.Value.(*upstreams); ok && sites.named() {
			lines = siteLines(f.Name, *sites)
			break
		}
		lines = []string{f.Name + ":"}
		for _, item := range list.Items() {
			lines = append(lines, "  - "+text(item))
		}
	}
	return lines, err
}

// siteLines returns backends as a mapping of hosts.
func siteLines(name string, all upstreams) []string {
	lines := []string{name + ":"}
	for _, s := range all {
		host := s.Host
		if host == "" {
			host = anyHost
		}
		lines = append(lines, "  "+policyfile.Scalar(host)+":")
		for _, one := range s.Upstreams {
			lines = append(lines, "    - "+policyfile.Scalar(one.String()))
		}
	}
	return lines
}
