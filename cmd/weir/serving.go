package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/live"
)

// A service is one run of weir serve: what an edge stands in, from the flags to the drain.
type service struct {
	flags *serveFlags
	log   *slog.Logger

	running context.Context // ends when the process is told to
	told    chan struct{}   // closed when that has been said
	hangUps <-chan os.Signal
	manager *notifier

	front     *sockets
	operators *adminSide
	edge      *edge
	policy    *live.Policy
}

// serve runs the edge until ctx ends or the process is told to, and drains it.
func serve(ctx context.Context, f *serveFlags, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	s := &service{flags: f, log: newLogger(f, stderr), told: make(chan struct{})}
	defer s.heed(ctx)()
	document, err := readDocument(stdin, f.policy)
	if err != nil {
		return printProblems(stderr, err)
	}
	for _, w := range document.Warnings {
		printProblem(stderr, "warning", w)
	}
	if s.front, err = f.openFront(s.running.Done()); err != nil {
		return err
	}
	defer s.front.close()
	if err := f.occupy(s.running, s.front.public, s.front.by()); err != nil {
		return err
	}
	if s.operators, err = openAdmin(s.running, f, s.front.admin, s.log); err != nil {
		return s.unlessTold(err)
	}
	defer s.operators.close()
	f.operated = s.operators.listener != nil
	if s.edge, err = assemble(ctx, f, document.Policy, s.log, stderr, nil); errors.Is(err, errToldToEnd) {
		return s.unlessTold(err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.edge.close()) }()
	unfollow, err := s.follow(document)
	if err != nil {
		return err
	}
	defer unfollow()
	leave, err := s.edge.serveAdmin(s.operators, f, s.policy, s.log)
	if err != nil {
		return err
	}
	defer leave()
	return s.run(stdout)
}

// heed has signals end the service, or its policy read again. The caller runs what it returns at the end.
func (s *service) heed(ctx context.Context) (forget func()) {
	running, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	s.running, s.manager = running, &notifier{log: s.log}
	context.AfterFunc(running, func() {
		defer close(s.told)
		stop() // a second signal meets the default, which is to end at once
		s.log.Info("draining: requests under way may finish; a second signal ends at once")
		s.manager.tell(daemon.SdNotifyStopping, status("draining: requests under way may finish"))
	})
	hangUps, forgetHangUps := catchHangUps()
	s.hangUps = hangUps
	return func() {
		forgetHangUps()
		stop()
	}
}

// unlessTold returns err, or nil where the process was told to end: it waited for what another process held, and ends in good order.
func (s *service) unlessTold(err error) error {
	if s.running.Err() == nil {
		return err
	}
	<-s.told
	return nil
}

// follow has the policy in force follow its file, and all who care be told of it, until unfollow is called.
func (s *service) follow(document *live.Document) (unfollow func(), err error) {
	e := s.edge
	following := live.Options{
		Reader: policyReader(), Check: e.countable, Before: s.operators.audit.PolicyChange, Log: s.log,
		Told: func(state live.State) {
			e.denials.under(state)
			e.watchPolicy(state)
			s.manager.tell(e.statusOf(state))
		},
	}
	if err := e.candidateOptions(s.flags, s.log, &following, e.candidateChanged); err != nil {
		return nil, err
	}
	if s.policy, err = live.New(document, e.decider.Swap, following); err != nil {
		return nil, cli.Fail(err, "")
	}
	e.bindMetrics(s.policy)
	e.watchPolicy(s.policy.State())
	e.candidateLine, e.adminLine = candidateLine(s.policy), s.operators.line
	return followPolicy(s.running, s.policy, s.hangUps, s.manager, s.log), nil
}

// run says what was started, serves, and drains.
func (s *service) run(stdout io.Writer) error {
	e, at := s.edge, s.front.public.Addr()
	if err := e.announce(stdout, s.flags, s.front); err != nil {
		return cli.Fail(fmt.Errorf("say what was started: %w", err), "")
	}
	s.log.Info("serving", "address", at.String())
	if s.flags.demo {
		leave, err := e.visit(s.running, at, s.log)
		if err != nil {
			return cli.Fail(err, "")
		}
		defer leave()
	}
	s.manager.tell(daemon.SdNotifyReady, e.statusOf(s.policy.State()))
	defer s.manager.feedWatchdog((&pulse{edge: e, at: at}).alive)()
	if err := e.gateway.Serve(s.running, e.metrics.Listener("edge", s.front.public)); err != nil {
		return cli.Fail(err, "")
	}
	<-s.told
	s.log.Info("drained, good-bye")
	return nil
}
