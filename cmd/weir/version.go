package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// A build says which Weir this is.
type build struct {
	Version  string `json:"version"`            // the module's version; "devel" where it was not built from one
	Revision string `json:"revision,omitempty"` // the commit; ends in "+changes" where the tree had more
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
		case "vcs.modified":
			if s.Value == "true" {
				changes = "+changes"
			}
		}
	}
	if b.Revision != "" {
		b.Revision += changes
	}
	return b
}

func (b build) String() string {
	s := "weir " + b.Version
	if b.Revision != "" {
		s += " (" + b.Revision + ")"
	}
	return s + " " + b.Go + " " + b.Platform
}

func newVersion() *cobra.Command {
	var machine onOff
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Say which Weir this is",
		Example: "  weir version\n  weir version --json",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if machine {
				return writeJSON(cmd.OutOrStdout(), thisBuild())
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), thisBuild())
			return err
		},
	}
	jsonFlag(cmd, &machine)
	return cmd
}

// jsonFlag adds --json, for what machines may read.
func jsonFlag(cmd *cobra.Command, machine *onOff) {
	switchFlag(cmd, machine, "json", "print JSON")
}

// switchFlag adds a flag that is on when given without a value.
func switchFlag(cmd *cobra.Command, o *onOff, name, usage string) {
	cmd.Flags().Var(o, name, usage)
	cmd.Flags().Lookup(name).NoOptDefVal = "on"
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
