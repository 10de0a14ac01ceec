package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/docsync"
	"github.com/weirlimit/weir/internal/folder"
	"github.com/weirlimit/weir/internal/plaintext"
	"github.com/weirlimit/weir/pacer"
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

// syncFlags are what weir sync is told.
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

// A secret is a flag's value that is never shown.
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

// check refuses what is missing or cannot be meant.
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
	f.prune = f.prune || f.pruneMany
	f.to.URL, f.base.URL = oneSpelling(f.to.URL), oneSpelling(f.base.URL)
	return nil
}

// oneSpelling returns a server's URL as it is remembered, so that it is known again. What is escaped in it stays so.
func oneSpelling(u *url.URL) *url.URL {
	one := *u
	one.Host, one.RawPath = strings.ToLower(u.Host), strings.TrimRight(u.EscapedPath(), "/")
	if path, err := url.PathUnescape(one.RawPath); err == nil {
		one.Path = path
	}
	return &one
}

// A syncing is one run of weir sync, with all that it uses.
type syncing struct {
	f        *syncFlags
	started  time.Time
	show     *syncProgress
	sender   *docsync.Sender
	pacer    *pacer.Transport
	sync     *docsync.Sync
	plan     docsync.Plan
	planned  bool // there is a plan
	refusals counter
}

func runSync(cmd *cobra.Command, env cli.Environment, f *syncFlags, dir string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &syncing{f: f, started: time.Now(), show: newSyncProgress(cmd.ErrOrStderr())}
	defer context.AfterFunc(ctx, func() {
		stop() // a second signal meets the default, which is to end at once
		s.show.interrupted()
	})()
	err := s.run(ctx, env, dir)
	s.show.end()
	return s.conclude(cmd, err)
}

func (s *syncing) run(ctx context.Context, env cli.Environment, dir string) (err error) {
	docs, err := folder.Open(dir, folder.Options{Base: s.f.base.URL, Skip: fromRoot(s.f.state, s.f.share), Exclude: s.f.exclude})
	if err != nil {
		return cli.Fail(errors.New(plaintext.Line(err.Error(), 500)), "name a folder that is there, and that you may read")
	}
	defer docs.Close()
	if s.f.state == "" {
		if s.f.state, err = syncState(env, dir, s.f.to.URL); err != nil {
			return err
		}
		if !s.f.dry {
			if err := makeStateHome(s.f.state); err != nil {
				return err
			}
		}
	}
	client := &http.Client{}
	o := docsync.Options{
		Folder: docs, To: s.f.to.URL, Token: string(s.f.token), TokenID: cli.TokenID(string(s.f.token)), Base: s.f.base.String(), NewBase: s.f.rebase,
		Client: client, State: s.f.state, All: bool(s.f.all), DryRun: bool(s.f.dry), Report: s.show.event,
	}
	switch {
	case bool(s.f.pruneMany):
		o.Prune = docsync.PruneMany
	case bool(s.f.prune):
		o.Prune = docsync.PruneSome
	}
	if s.sync, err = docsync.Open(o); err != nil {
		s.sync = nil
		return err
	}
	defer func() { err = errors.Join(err, s.sync.Close()) }()
	closeView, err := s.connect(client)
	if err != nil {
		return err
	}
	defer closeView()
	if s.sync.OtherToken() {
		if err := s.sync.Confirm(ctx); err != nil {
			return err
		}
	}
	if s.plan, err = s.sync.Plan(ctx); err != nil {
		return err
	}
	s.planned = true
	return s.push(ctx)
}

// fromRoot returns paths, such as they are meant here, from the root.
func fromRoot(paths ...string) (all []string) {
	for _, path := range paths {
		if to, err := filepath.Abs(path); path != "" && err == nil {
			all = append(all, to)
		}
	}
	return all
}

// connect makes what the client sends with, paced.
func (s *syncing) connect(client *http.Client) (closeView func(), err error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 8
	s.sender = &docsync.Sender{Base: base}
	var lost sync.Once
	o := &pacer.Options{
		Base:      s.sender,
		MaxWait:   cmp.Or(s.f.maxWait.Duration, pacer.NoWait),
		OnWait:    s.show.wait,
		OnRefused: func(pacer.Refusal) { s.refusals.add() },
		OnSharedFailure: func(err error) {
			lost.Do(func() {
				s.show.say("warning: what is known of the budget cannot be kept: %s", plaintext.Line(err.Error(), 300))
			})
		},
	}
	closeView = func() {}
	if !s.f.dry { // which writes nothing, and sends nothing that would need to know
		view, err := pacer.OpenFile(cmp.Or(s.f.share, s.f.state+".budget")) // what the last run has left of it, unless it is shared
		if err != nil {
			return nil, cli.Fail(errors.New(plaintext.Line(err.Error(), 500)), "name with --share a file of your own, the same for all who use the token")
		}
		closeView = func() { _ = view.Close() } // it was read or written, or it did not matter
		o.Shared = view
	}
	s.pacer = pacer.New(o)
	client.Transport = impatient{s.pacer}
	return closeView, nil
}

// An impatient transport ends the sync where the wait for a budget is too long.
type impatient struct{ http.RoundTripper }

func (t impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	var w *pacer.WaitError
	if errors.As(err, &w) && r.Context().Err() == nil {
		err = &docsync.Failure{
			Err:  fmt.Errorf("%s, next window in %s: longer than --max-wait allows", w.Reason, cli.TimeLeft(w.Wait)),
			Hint: fmt.Sprintf("run the same command again after %s to go on, or allow more with --max-wait", w.Until.Format(time.DateTime)),
		}
	}
	return response, err
}

// push does what is planned, but for a dry run.
func (s *syncing) push(ctx context.Context) error {
	if s.plan.Derived > 0 && s.f.base.URL.Host == s.f.to.URL.Host && len(s.plan.Send) > 0 {
		s.show.say("links of documents begin with %s; --base-url says otherwise", plaintext.Line(s.f.base.String(), 200))
	}
	if s.plan.WasBase != "" && s.plan.Derived > 0 {
		s.show.say("links of documents have begun with %s so far: they are sent again", plaintext.Line(s.plan.WasBase, 200))
	}
	if s.sync.OtherToken() && bool(s.f.dry) {
		s.show.say("the token is another one than the last time: whether it is for the same workspace is asked when something is sent")
	}
	todo, requests := len(s.plan.Send), s.plan.Requests
	if s.f.prune {
		todo, requests = todo+len(s.plan.Vanished), requests+s.plan.Deletions
	}
	if s.f.dry || todo == 0 {
		return nil
	}
	s.show.begin(todo, requests, func(n int) time.Duration { return s.estimate(n) })
	return s.sync.Push(ctx)
}

// estimate is how long n more requests take for want of budget, 0 where nothing is known.
func (s *syncing) estimate(n int) time.Duration {
	r, err := s.request()
	if err != nil {
		return 0
	}
	return s.pacer.Estimate(r, n)
}

// request is one as it will be sent, to ask about.
func (s *syncing) request() (*http.Request, error) {
	r, err := http.NewRequest(http.MethodPut, s.f.to.JoinPath("v1/wp/documents").String(), nil)
	if err == nil {
		r.Header.Set("Authorization", "Bearer "+string(s.f.token))
	}
	return r, err
}

// asFailure makes what docsync says an error with its hint.
func asFailure(err error) error {
	var f *docsync.Failure
	switch {
	case errors.Is(err, docsync.ErrInterrupted):
		return cli.Fail(errors.New("interrupted; run the same command again to go on"), "")
	case errors.As(err, &f):
		return cli.Fail(f.Err, f.Hint)
	}
	return err
}
