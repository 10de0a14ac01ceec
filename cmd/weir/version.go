package main

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/weirlimit/weir/internal/cli"

	"github.com/spf13/cobra"
)

// A build identifies the program.
type build struct {
	// Version is the module's version, or "devel" if it was not built from one.
	Version string `json:"version"`
	// Revision is the commit. It ends in "+changes" if the tree had uncommitted changes.
	Revision string `json:"revision,omitempty"`
	// Date is the commit's, in RFC 3339. A program that Go built from a downloaded module has
	// neither commit nor date, unless its version contains them.
	Date     string `json:"date,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	changes := ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				changes = "+changes"
			}
		}
	}
	if b.Revision != "" {
		b.Revision += changes
	} else if m := untagged.FindStringSubmatch(b.Version); m != nil {
		b.Revision = m[2]
		if at, err := time.Parse("20060102150405", m[1]); err == nil {
			b.Date = at.Format(time.RFC3339)
		}
	}
	return b
}

// untagged matches a module's version that Go makes of a commit without a tag.
var untagged = regexp.MustCompile(`[-.](\d{14})-([0-9a-f]{12})$`)

func (b build) String() string {
	s := "weir " + b.Version
	if b.Revision != "" {
		s += " (" + b.Revision
		if b.Date != "" {
			s += ", " + b.Date
		}
		s += ")"
	}
	return s + " " + b.Go + " " + b.Platform
}

func newVersion() *cobra.Command {
	var machine cli.OnOff
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  weir version\n  weir version --json",
		Args:    cli.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if machine {
				return cli.WriteJSON(cmd.OutOrStdout(), thisBuild())
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), thisBuild())
			return err
		},
	}
	cli.JSONFlag(cmd, &machine)
	return cmd
}
