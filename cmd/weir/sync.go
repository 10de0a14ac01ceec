package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/docsync"
	"github.com/weirlimit/weir/internal/docsync/paced"
	"github.com/weirlimit/weir/internal/folder"
	"github.com/weirlimit/weir/internal/plaintext"
)

const syncLong = `Push a folder of Markdown, HTML and text to the bulk-sync surface, as fast as its budget allows.

It sends what has changed since the last run, in batches that are as large as allowed. When the budget is used up,
it waits for the next window, so the server never has to refuse a request. The id of a document is its path in DIR.
Its title comes from front matter, the first heading or the name of the file. Its link is the url of its front
matter, else --base-url and the path without the extension (an index page is its folder). Hidden files are left
out, and symbolic links are not followed.

The command records what the server has acknowledged, for this server and the token's workspace, in --state FILE (by
default among the user's own files, not in DIR). To continue an interrupted sync, run the same command again. The
command names each file that it cannot send, and sends the others.

Give the token in the variable WEIR_TOKEN: every user who may run ps can read the command line.

Exit status: 0 success; 1 a file could not be sent, the sync was interrupted, or the server refused; 2 incorrect use.`

const syncExample = `  export WEIR_TOKEN=$(weir token create --workspace demo)   # with the --data of serve
  weir sync docs --to http://127.0.0.1:8080 --base-url https://example.com/docs
  weir sync docs --to http://127.0.0.1:8080 --dry-run
  weir sync docs --to http://127.0.0.1:8080 --prune --exclude drafts/ --exclude '*.tmp.md'
  weir sync docs --to http://127.0.0.1:8080 --share ~/.cache/weir-budget --json`

// syncFlags are the flags of weir sync.
type syncFlags struct {
	to, base         cli.Endpoint
	rebase           bool // --base-url was given
	token            secret
	state, share     string
	exclude          excludes
	prune, pruneMany cli.OnOff
	all, dry, out    cli.OnOff
	maxWait          cli.Span
}

// A secret is the value of a flag that is never printed.
type secret string

func (s *secret) Set(value string) error {
	value = strings.TrimSpace(value)
	if value == "" || len(value) > 4096 || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("expected a token as 'weir token create' prints it")
	}
	*s = secret(value)
	return nil
}

func (s *secret) String() string       { return "" }
func (s *secret) Type() string         { return "TOKEN" }
func (s *secret) Redact(string) string { return "…" }

func newSync(env cli.Environment) *cobra.Command {
	f := &syncFlags{maxWait: cli.Span{Duration: 2 * time.Hour, Max: 31 * 24 * time.Hour}}
	cmd := &cobra.Command{
		Use:     "sync DIR --to URL",
		Short:   "Push a folder of documents at the pace that the server allows",
		Long:    syncLong,
		Example: syncExample,
		Args:    cli.Arguments("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return runSync(cmd, env, f, args[0])
		},
	}
	flags := cmd.Flags()
	flags.Var(&f.to, "to", "`URL` of the server, without /v1/wp")
	flags.Var(&f.token, "token", "API `TOKEN` of the workspace; use the variable, because ps shows the command line")
	flags.Var(&f.base, "base-url", "`URL` at the beginning of the documents' links (default --to)")
	flags.StringVar(&f.state, "state", "", "`FILE` that records what was acknowledged (default one for DIR and the server in $XDG_STATE_HOME/weir/sync)")
	flags.Var(&f.exclude, "exclude", "leave out what matches this `PATTERN`, such as drafts/, *.tmp.md or old/**/*.md; repeatable")
	flags.StringVar(&f.share, "share", "", "`FILE` through which several syncs with one token share what they know of its budget (default beside the state)")
	flags.Var(&f.maxWait, "max-wait", "maximum time to wait for the next window; if it is longer, the sync ends and reports when to continue")
	cli.SwitchFlag(cmd, &f.prune, "prune", "delete documents whose files are gone since an earlier sync, unless most are")
	cli.SwitchFlag(cmd, &f.pruneMany, "prune-many", "delete them even if most are gone")
	cli.SwitchFlag(cmd, &f.all, "all", "also send unchanged documents")
	cli.SwitchFlag(cmd, &f.dry, "dry-run", "print what would be sent and deleted, and how long it would take")
	cli.SwitchFlag(cmd, &f.out, "json", "print a summary as JSON")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return cmd
}

// check rejects flags that are missing or contradict one another.
func (f *syncFlags) check() error {
	if f.to.URL == nil {
		return cli.UsageError("for example: weir sync docs --to http://127.0.0.1:8080", "--to is missing: it takes the URL of the server")
	}
	f.rebase = f.base.URL != nil
	if !f.rebase {
		f.base.URL = f.to.URL
	}
	for name, u := range map[string]*url.URL{"to": f.to.URL, "base-url": f.base.URL} {
		if u.RawQuery != "" || u.ForceQuery {
			return cli.UsageError("leave out what begins with the question mark", "--%s %q: expected a URL without a query", name, u)
		}
	}
	if f.token == "" {
		return cli.UsageError("export WEIR_TOKEN=$(weir token create --workspace demo)", "there is no token: set the variable WEIR_TOKEN")
	}
	f.to.URL, f.base.URL = paced.Normalize(f.to.URL), paced.Normalize(f.base.URL)
	return nil
}

// pruned returns which documents are deleted of those whose files are gone.
func (f *syncFlags) pruned() docsync.Prune {
	switch {
	case bool(f.pruneMany):
		return docsync.PruneMany
	case bool(f.prune):
		return docsync.PruneSome
	}
	return docsync.Keep
}

func runSync(cmd *cobra.Command, env cli.Environment, f *syncFlags, dir string) error {
	show := newSyncProgress(cmd.ErrOrStderr())
	ctx, stop := cli.Interruptible(cmd.Context(), show.interrupted)
	defer stop()
	var run *paced.Run
	run = paced.New(paced.Options{
		Dir: dir, To: f.to.URL, Base: f.base.URL, NewBase: f.rebase, Token: string(f.token),
		State: f.state, Env: env, Share: f.share, Exclude: f.exclude, Prune: f.pruned(), All: bool(f.all), DryRun: bool(f.dry),
		MaxWait: f.maxWait.Duration, Event: show.event, Wait: show.wait,
		Lost: func(err error) {
			show.printf("warning: what is known of the budget cannot be kept: %s", plaintext.Line(err.Error(), 300))
		},
		Planned: func(w paced.Work) { f.planned(show, run, w) },
	})
	err := run.Do(ctx)
	show.end()
	return f.conclude(cmd, show, run, err)
}

// planned prints what the user should know before anything is sent, and shows the progress from
// then on.
func (f *syncFlags) planned(show *syncProgress, run *paced.Run, w paced.Work) {
	if w.Derived > 0 && f.base.URL.Host == f.to.URL.Host && len(w.Send) > 0 {
		show.printf("links of documents begin with %s; --base-url changes that", plaintext.Line(f.base.String(), 200))
	}
	if w.WasBase != "" && w.Derived > 0 {
		show.printf("links of documents began with %s so far: they are sent again", plaintext.Line(w.WasBase, 200))
	}
	if w.OtherToken {
		show.printf("the token is not that of the last run: the next sync asks the server whether it is for the same workspace")
	}
	if !bool(f.dry) && w.Documents > 0 {
		show.begin(w.Documents, w.Requests, run.Estimate)
	}
}

// conclude prints what was done and returns the failure to end with.
func (f *syncFlags) conclude(cmd *cobra.Command, show *syncProgress, run *paced.Run, err error) error {
	if err == nil {
		err = f.leftOut(len(run.Skipped()), run.Found())
	} else {
		err = asFailure(err)
	}
	summary := run.Summary(err)
	f.printSummary(show, summary, run.Found())
	if f.out {
		return errors.Join(cli.WriteSafeJSON(cmd.OutOrStdout(), summary), err)
	}
	if would := summary.DryRun; would != nil {
		for _, id := range would.Send {
			fmt.Fprintf(cmd.OutOrStdout(), "send    %s\n", plaintext.Line(id, 500))
		}
		for _, id := range would.Delete {
			fmt.Fprintf(cmd.OutOrStdout(), "delete  %s\n", plaintext.Line(id, 500))
		}
	}
	return err
}

// leftOut returns the failure of a sync that has skipped bad files out of those found; nil if there
// are none.
func (f *syncFlags) leftOut(bad, found int) error {
	if bad == 0 {
		return nil
	}
	what, hint := "%s could not be sent", "they are named above, with what to do about each"
	if bad > maxNamed {
		hint = fmt.Sprintf("the first %d are named above; --json names all", maxNamed)
	}
	switch {
	case bool(f.dry):
		what = "%s cannot be sent"
	case found > bad:
		hint += "; the others are up to date"
	}
	return cli.Fail(fmt.Errorf(what, cli.Count(bad, "file")), hint)
}

// printSummary prints a summary for people, on standard error.
func (f *syncFlags) printSummary(show *syncProgress, y paced.Summary, found int) {
	if n := y.Ignored; n > 0 {
		show.printf("left out %s with other extensions", cli.Count(n, "file"))
	}
	if n := y.Excluded; n > 0 {
		show.printf("left out %s that --exclude matches", cli.Count(n, "path"))
	}
	if n := y.Links; n > 0 {
		show.printf("left out %s: they are not followed", cli.Count(n, "symbolic link"))
	}
	switch would := y.DryRun; {
	case would != nil:
		show.printf("would send %s and delete %d, %d unchanged, in %s: %s", cli.Count(len(would.Send), "document"), len(would.Delete), y.Unchanged,
			cli.Count(would.Requests, "request"), atLeast(would.Seconds))
	case y.Requests == 0 && y.Error == "":
		show.printf("nothing to do: %s unchanged", cli.Count(y.Unchanged, "document"))
	case found > 0 || y.Requests > 0:
		show.printf("sent %s, deleted %d, %d unchanged; %s, %d refused; %.1f s, %.1f s of them waiting",
			cli.Count(y.Sent, "document"), y.Deleted, y.Unchanged, cli.Count(int(y.Requests), "request"), y.Refusals, y.Seconds, y.Waited)
	}
	if y.Vanished > 0 && f.pruned() == docsync.Keep {
		show.printf("%s gone from the folder, or excluded, but still on the server; --prune deletes them", cli.Count(y.Vanished, "document"))
	}
}

func atLeast(seconds float64) string {
	if seconds < 1 {
		return "no waiting"
	}
	return "at least " + (time.Duration(seconds+0.5) * time.Second).String()
}

// asFailure returns an error of a sync as a failure with its hint.
func asFailure(err error) error {
	var f *docsync.Failure
	switch {
	case errors.Is(err, docsync.ErrInterrupted):
		return cli.Fail(fmt.Errorf("%w; run the same command again to go on", docsync.ErrInterrupted), "")
	case errors.As(err, &f):
		return cli.Fail(f.Err, f.Hint)
	}
	return err
}

// excludes is a repeatable flag: patterns of paths to leave out.
type excludes []string

func (x *excludes) Set(value string) error {
	if err := folder.CheckPattern(value); err != nil {
		return err
	}
	*x = append(*x, value)
	return nil
}

func (x *excludes) String() string { return "" }
func (x *excludes) Type() string   { return "PATTERN" }
func (x *excludes) Repeatable()    {}
