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

const syncLong = `Push a folder of Markdown, HTML and text to the bulk-sync surface, as fast as its budget allows and no faster.

What has changed since the last time is sent, in batches as large as allowed, and never refused: when the
budget is spent, it waits for the next window and says so. A document's id is its path in DIR. Its title is what
front matter, the first heading or the file's name says; its link is the url of its front matter, else --base-url
with the path, without the extension (an index page is its folder). Hidden files are passed over, symbolic links
not followed.

What was acknowledged is remembered among the user's own files, not in DIR, or in --state FILE, for this server and
the token's workspace. So an interrupted sync goes on where it was: run the same command again. Files that cannot
be sent are named, and the others go on.

Put the token into the variable WEIR_TOKEN: on the command line everybody who may run ps can read it.

Exit status: 0 all done; 1 a file could not be sent, it was interrupted, or the server says no; 2 used wrongly.`

const syncExample = `  export WEIR_TOKEN=$(weir token create --workspace demo)   # --data DIR, where serve has it too
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
		return errors.New("want a token as 'weir token create' prints it")
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
		Short:   "Push a folder of documents, pacing itself",
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
	flags.Var(&f.to, "to", "the server's `URL`, above /v1/wp")
	flags.Var(&f.token, "token", "API `TOKEN` of the workspace; use the variable, ps shows the command line")
	flags.Var(&f.base, "base-url", "`URL` that the documents' links begin with (default --to)")
	flags.StringVar(&f.state, "state", "", "`FILE` that remembers what was acknowledged (default one for DIR and the server below $XDG_STATE_HOME/weir/sync)")
	flags.Var(&f.exclude, "exclude", "pass over what matches this `PATTERN`, such as drafts/, *.tmp.md or old/**/*.md; repeatable")
	flags.StringVar(&f.share, "share", "", "`FILE` through which several syncs with one token share their view of its budget (default beside the state)")
	flags.Var(&f.maxWait, "max-wait", "how long to wait for the next window at most; a longer one ends the sync, with when to come back")
	cli.SwitchFlag(cmd, &f.prune, "prune", "delete documents whose files have gone since an earlier sync, if that is not most of them")
	cli.SwitchFlag(cmd, &f.pruneMany, "prune-many", "delete them even if that is most of them")
	cli.SwitchFlag(cmd, &f.all, "all", "send what has not changed, too")
	cli.SwitchFlag(cmd, &f.dry, "dry-run", "say what would be sent and deleted, and how long it would take")
	cli.SwitchFlag(cmd, &f.out, "json", "print a summary as JSON")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return cmd
}

// check rejects flags that are missing or contradict one another.
func (f *syncFlags) check() error {
	if f.to.URL == nil {
		return cli.UsageError("for example: weir sync docs --to http://127.0.0.1:8080", "--to is missing: where is the server?")
	}
	f.rebase = f.base.URL != nil
	if !f.rebase {
		f.base.URL = f.to.URL
	}
	for name, u := range map[string]*url.URL{"to": f.to.URL, "base-url": f.base.URL} {
		if u.RawQuery != "" || u.ForceQuery {
			return cli.UsageError("leave out what begins with the question mark", "--%s %q: want a URL without a query", name, u)
		}
	}
	if f.token == "" {
		return cli.UsageError("export WEIR_TOKEN=$(weir token create --workspace demo)", "there is no token: want it in the variable WEIR_TOKEN")
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
			show.say("warning: what is known of the budget cannot be kept: %s", plaintext.Line(err.Error(), 300))
		},
		Planned: func(w paced.Work) { f.planned(show, run, w) },
	})
	err := run.Do(ctx)
	show.end()
	return f.conclude(cmd, show, run, err)
}

// planned says what is worth knowing before anything is sent, and begins to show it.
func (f *syncFlags) planned(show *syncProgress, run *paced.Run, w paced.Work) {
	if w.Derived > 0 && f.base.URL.Host == f.to.URL.Host && len(w.Send) > 0 {
		show.say("links of documents begin with %s; --base-url says otherwise", plaintext.Line(f.base.String(), 200))
	}
	if w.WasBase != "" && w.Derived > 0 {
		show.say("links of documents have begun with %s so far: they are sent again", plaintext.Line(w.WasBase, 200))
	}
	if w.OtherToken {
		show.say("the token is another one than the last time: whether it is for the same workspace is asked when something is sent")
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
	f.say(show, summary, run.Found())
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
	what, hint := "%s could not be sent", "named above, each with what to do"
	if bad > maxNamed {
		hint = fmt.Sprintf("the first %d are named above, --json names all", maxNamed)
	}
	switch {
	case bool(f.dry):
		what = "%s cannot be sent"
	case found > bad:
		hint += "; the others are in step"
	}
	return cli.Fail(fmt.Errorf(what, cli.Count(bad, "file")), hint)
}

// say prints a summary for people, on standard error.
func (f *syncFlags) say(show *syncProgress, y paced.Summary, found int) {
	if n := y.Ignored; n > 0 {
		show.say("passed over %s with other extensions", cli.Count(n, "file"))
	}
	if n := y.Excluded; n > 0 {
		show.say("passed over %s that --exclude matches", cli.Count(n, "path"))
	}
	if n := y.Links; n > 0 {
		show.say("passed over %s: they are not followed", cli.Count(n, "symbolic link"))
	}
	switch would := y.DryRun; {
	case would != nil:
		show.say("would send %s and delete %d, %d unchanged, in %s: %s", cli.Count(len(would.Send), "document"), len(would.Delete), y.Unchanged,
			cli.Count(would.Requests, "request"), atLeast(would.Seconds))
	case y.Requests == 0 && y.Error == "":
		show.say("nothing to do: %s unchanged", cli.Count(y.Unchanged, "document"))
	case found > 0 || y.Requests > 0:
		show.say("sent %s, deleted %d, %d unchanged; %s, %d refused; %.1f s, %.1f s of them waiting",
			cli.Count(y.Sent, "document"), y.Deleted, y.Unchanged, cli.Count(int(y.Requests), "request"), y.Refusals, y.Seconds, y.Waited)
	}
	if y.Vanished > 0 && f.pruned() == docsync.Keep {
		show.say("%s gone from the folder, or excluded, and still on the server; --prune deletes them", cli.Count(y.Vanished, "document"))
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
