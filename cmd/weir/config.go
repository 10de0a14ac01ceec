package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/cli"
	reports "github.com/weirlimit/weir/internal/replay/report"
	"github.com/weirlimit/weir/policyfile"
)

// The configuration file of weir serve has one setting for each flag, under the flag's name. The
// flags are the only table: what a value means, and the words for one that means nothing, are those
// of the command line.

// anyHost is the key in the mapping upstream of the backend of all other hosts.
const anyHost = "*"

// settingFlags returns the flags of weir serve that a configuration file can set, in their order:
// those that have a variable, without --config itself.
func settingFlags(cmd *cobra.Command) (all []*pflag.Flag) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, ok := cli.Variable(f); ok && f.Name != "config" {
			all = append(all, f)
		}
	})
	return all
}

// A configuration is the file of --config while it is read.
type configuration struct {
	path  string
	names []string
	// flags are a set of their own: all values of the file are checked, also those that the command
	// line or a variable overrides.
	flags *pflag.FlagSet
	read  []*policyfile.Setting
}

// readConfig sets the flags that are in the file of --config, and neither on the command line nor
// in a variable. If the file has a problem, it sets none, and the error has all problems. With
// --check it sets those without a problem, so that the files that they name are read as well.
func (f *serveFlags) readConfig(cmd *cobra.Command) error {
	if f.configFile == "" {
		return nil
	}
	spare := &cobra.Command{}
	defaultServeFlags().register(spare)
	c := &configuration{path: f.configFile, flags: spare.Flags()}
	for _, flag := range settingFlags(spare) {
		c.names = append(c.names, flag.Name)
	}
	err := policyfile.LoadSettings(c.path, c.take, "upstream")
	if errors.Is(err, os.ErrNotExist) {
		hint := "'weir serve --print-config > FILE' makes one to start from"
		if !cli.GivenItself(cmd, "config") {
			hint = "correct or unset WEIR_CONFIG; then " + hint
		}
		return cli.Fail(fmt.Errorf("there is no configuration file %q", c.path), hint)
	}
	if err != nil && !bool(f.checkOnly) {
		return err
	}
	for _, s := range c.read {
		flag := cmd.Flags().Lookup(s.Name)
		if flag.Changed {
			continue
		}
		c.set(s, flag)
		cli.MarkFromFile(flag, c.path, s.Line)
	}
	f.settings = len(c.read)
	return err
}

// take checks a setting of the file.
func (c *configuration) take(s *policyfile.Setting) {
	flag := c.flags.Lookup(s.Name)
	if flag == nil || !slices.Contains(c.names, s.Name) {
		hint := policyfile.DidYouMean(s.Name, c.names)
		if meant := otherSettings[strings.ToLower(s.Name)]; hint == "" && meant != "" {
			hint = fmt.Sprintf("did you mean %q?", meant)
		}
		if hint == "" {
			hint = "'weir serve --help' lists the flags: each is a setting"
		}
		s.Problem(-1, hint, "%q is not a setting of weir serve", short(s.Name))
		return
	}
	c.set(s, flag)
	c.read = append(c.read, s)
}

// otherSettings maps words from other products to the settings that they correspond to.
var otherSettings = map[string]string{
	"port": "listen", "bind": "listen", "address": "listen", "addr": "listen", "server": "listen",
	"backend": "upstream", "backends": "upstream", "upstreams": "upstream", "sites": "upstream", "proxy_pass": "upstream", "target": "upstream",
	"limiters": "policy", "limits": "policy", "policies": "policy",
	"cert": "tls-cert", "certificate": "tls-cert", "tls": "tls-cert", "ssl": "tls-cert", "key": "tls-key",
	"redis": "store", "database": "store", "logs": "access-log", "logging": "log-format", "dir": "data", "directory": "data",
}

// set sets a flag to a setting, and reports each value that the flag rejects.
func (c *configuration) set(s *policyfile.Setting, flag *pflag.Flag) {
	list, isList := flag.Value.(cli.List)
	switch {
	case s.Form == policyfile.SettingMapping:
		c.setSites(s, flag)
	case s.Form == policyfile.SettingList && !isList:
		s.Problem(-1, "write one value, without brackets and dashes", "%s is a list: one value is needed", flag.Name)
	case s.Form == policyfile.SettingList && !list.Adds():
		c.setItems(s, flag)
	default:
		for i := range s.Values {
			c.setOne(s, i, flag, c.resolved(flag, s.Values[i].Text))
		}
	}
}

// setItems sets a flag whose Set replaces the elements.
func (c *configuration) setItems(s *policyfile.Setting, flag *pflag.Flag) {
	items, rejected := make([]string, len(s.Values)), false
	for i, v := range s.Values {
		items[i] = v.Text
		if !isText(s, i, flag) {
			rejected = true
			continue
		}
		alone := reflect.New(reflect.TypeOf(flag.Value).Elem()).Interface().(pflag.Value)
		if err := alone.Set(v.Text); err != nil {
			rejected = true
			message, hint := cli.ValueProblem(flag, v.Text, err)
			s.Problem(i, hint, "%s", message)
		}
	}
	if rejected {
		return
	}
	if err := flag.Value.Set(strings.Join(items, ",")); err != nil {
		message, hint := cli.ValueProblem(flag, strings.Join(items, ","), err)
		s.Problem(0, hint, "%s", message)
	}
}

// setOne sets a flag to a text, which is value i of the setting or is made of it.
func (c *configuration) setOne(s *policyfile.Setting, i int, flag *pflag.Flag, text string) {
	if !isText(s, i, flag) {
		return
	}
	if text == "" && flag.Value.Type() == "string" && cli.NamesFile(flag) {
		s.Problem(i, "remove the line to do without one", "%s \"\": expected the name of a file or a directory", flag.Name)
		return
	}
	if err := flag.Value.Set(text); err != nil {
		message, hint := cli.ValueProblem(flag, text, err)
		s.Problem(i, hint, "%s", message)
	}
}

// isText reports a value that YAML takes for another type although the flag's values are texts.
func isText(s *policyfile.Setting, i int, flag *pflag.Flag) bool {
	v := s.Values[i]
	if _, isList := flag.Value.(cli.List); v.Kind == "text" || flag.Value.Type() != "string" && !isList {
		return true
	}
	s.Problem(i, fmt.Sprintf("if you mean the text, put it in quotes: %q", v.Text), "%s is %s (%s): text is needed", flag.Name, v.Kind, short(v.Text))
	return false
}

// setSites sets upstream to a mapping of hosts to URLs.
func (c *configuration) setSites(s *policyfile.Setting, flag *pflag.Flag) {
	if _, ok := flag.Value.(*upstreams); !ok {
		hint := "write one value, without braces"
		if flag.Name == "policy" {
			hint = "write the policy into a file of its own, and its name here"
		}
		s.Problem(-1, hint, "%s is a mapping: only upstream can be one", flag.Name)
		return
	}
	first := make(map[string]policyfile.Value) // of each host
	rejected := make(map[string]bool)          // keys
	for i, v := range s.Values {
		host, err := parseSite(v.Key)
		before, again := first[host]
		switch {
		case rejected[v.Key]:
			continue
		case err != nil:
			rejected[v.Key] = true
			s.KeyProblem(i, "", "host %q: %v", short(v.Key), err)
			continue
		case again && before.Key != v.Key:
			rejected[v.Key] = true
			s.KeyProblem(i, "merge the two: a host has one list of URLs", "%q is the same host as %q on line %d", short(v.Key), short(before.Key), before.KeyLine)
			continue
		case namesHost(v.Text):
			s.Problem(i, "write each host as a key of its own", "%s: a URL of %q has a host before it", flag.Name, short(v.Key))
			continue
		case !again:
			first[host] = v
		}
		c.setOne(s, i, flag, cmp.Or(host, anyHost)+"="+v.Text)
	}
}

// namesHost reports whether an element of a list of URLs begins with HOST=.
func namesHost(urls string) bool {
	for element := range strings.SplitSeq(urls, ",") {
		if _, _, ok := cutSite(strings.TrimSpace(element)); ok {
			return true
		}
	}
	return false
}

// resolved returns the value of a flag. If it is the name of a file, a relative one begins at the
// directory of the configuration file.
func (c *configuration) resolved(flag *pflag.Flag, value string) string {
	dir := filepath.Dir(c.path)
	switch {
	case !cli.NamesFile(flag), value == "", filepath.IsAbs(value), dir == ".", isNoFile(flag, value):
		return value
	}
	return filepath.Join(dir, value)
}

// isNoFile reports whether the value of a flag that names a file stands for something else: for
// standard input, or for the built-in policy.
func isNoFile(flag *pflag.Flag, value string) bool {
	return value == "-" || flag.Name == "policy" && value == builtInPolicy
}

// short returns a text of the file as messages show it.
func short(s string) string { return reports.Shown(cli.RedactURL(s), 80) }
