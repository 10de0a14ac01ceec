package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/telemetry"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

// openShared opens the store that other machines count in too, and beside it one in this process's memory, which counts while
// the shared one does not answer and goes by its clock. Both are closed after the Decider, which o is for.
func (e *edge) openShared(ctx context.Context, f *serveFlags, p weir.Policy, log *slog.Logger, now func() time.Time, o *weir.Options) (weir.Store, error) {
	at := *f.store.Shared
	at.Now, at.Log = now, log
	at.Timeout = max(2*time.Second, 2*f.storeDeadline.Duration)
	if f.keySecret != "" {
		secret, err := readSecret(f.keySecret)
		if err != nil {
			return nil, cli.Fail(fmt.Errorf("read the secret of --key-secret: %w", err), fileHint(err, "all nodes have the same file, such as one made by: openssl rand -hex 32"))
		}
		at.Secret = secret
	}
	store, err := redisstore.New(ctx, at)
	if err != nil {
		return nil, sharedFailure(at, err)
	}
	e.closers = append(e.closers, store.Close)
	e.countable = store.Check
	if err := store.Check(p); err != nil {
		return nil, cli.Fail(fmt.Errorf("count in %s: %w", place(at), err), "'weir policy check FILE' says where; one server, without a cluster, counts such a policy too")
	}
	local, err := memstore.New(memstore.Options{Memory: int64(f.memory), Now: store.Now, Log: log})
	if err != nil {
		return nil, storeFailure(f, err)
	}
	e.closers = append(e.closers, local.Close)
	e.figures.Table = tableOf(local)
	e.figures.Shared = func() telemetry.Shared {
		st := store.Stats()
		return telemetry.Shared{Asked: st.Asked, Remembered: st.Remembered, Emptied: st.Emptied}
	}
	o.Fallback = local
	o.OnStoreFailure = func(event weir.StoreEvent) { reportStore(log, place(at), e.decider.Policy(), event) }

	state := store.State()
	if !state.Ready {
		log.Error("the store "+unready(state)+"; the server starts without it and uses it as soon as it answers",
			"store", place(at), "error", state.Err, "meanwhile", meanwhile(p))
	}
	e.storeLine = sharedLine(at, state, f.memory)
	e.degraded = func() error { return e.storeTrouble(store) }
	e.denials.shared, e.denials.agents = store.Secret(denialLabel), store.Secret(agentLabel)
	return store, nil
}

// mostSecret bounds a file that holds a secret.
const mostSecret = 64 << 10

// leastSecret is the length from which a secret is one (D14, D18).
const leastSecret = 32

// readSecret reads a secret from a file, as --jwt-key does: one newline at its end is an editor's.
func readSecret(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, mostSecret+1))
	if err != nil {
		return nil, err
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	if len(b) < leastSecret || len(b) > mostSecret {
		return nil, fmt.Errorf("%s: want a secret of %d bytes to %d KiB", path, leastSecret, mostSecret>>10)
	}
	return b, nil
}

// sharedFailure says why a shared store cannot be used, however long one waits, and what helps.
func sharedFailure(at redisstore.Options, err error) error {
	hint := ""
	var rights *redisstore.RightsError
	switch {
	case errors.As(err, &rights):
		hint = "on the server: ACL SETUSER " + cmp.Or(at.Username, "default") + " " + redisstore.Rule(at.Prefix)
	case errors.Is(err, redisstore.ErrDenied):
		hint = "is the password right? --store redis://USER:PASSWORD@HOST:PORT, or :PASSWORD@ for one without a user; in WEIR_STORE it is kept out of ps"
		if at.Master != "" {
			hint = "are the passwords right? the one before the hosts is the server's, ?sentinel_password= the Sentinels'; in WEIR_STORE they are kept out of ps"
		}
	case errors.Is(err, redisstore.ErrSecret):
		hint = "all nodes have the same --key-secret, or none has one; counters under another secret begin anew under another ?prefix="
	case errors.Is(err, redisstore.ErrServer):
		hint = "--store wants Redis 6.2, Valkey or later: one server, with a database that it has, or nodes of one cluster, or Sentinels"
	}
	return cli.Fail(fmt.Errorf("open the store: %w", err), hint)
}

// place names a server as people do, without credentials.
func place(at redisstore.Options) string {
	hosts := strings.Join(at.Addresses, ",")
	if at.Master != "" {
		return fmt.Sprintf("redis %s, by Sentinel %s", at.Master, hosts)
	}
	return "redis " + hosts
}

// sharedLine is what start-up says of a shared store.
func sharedLine(at redisstore.Options, state redisstore.State, memory cli.Size) string {
	var b strings.Builder
	b.WriteString(place(at))
	switch {
	case state.Mode == "cluster":
		b.WriteString(" (a cluster)")
	case state.Mode != "" && at.Master == "":
		b.WriteString(" (one server)")
	}
	if at.TLS != nil {
		b.WriteString(" by TLS")
	}
	if at.DB != 0 {
		fmt.Fprintf(&b, ", database %d", at.DB)
	}
	fmt.Fprintf(&b, ", prefix %s", cmp.Or(at.Prefix, "weir"))
	if state.Ready {
		fmt.Fprintf(&b, "; %v here while it does not answer", &memory)
	} else {
		fmt.Fprintf(&b, ": it %s, counting here until it answers, in %v", unready(state), &memory)
	}
	return b.String()
}

// unready says what a store that does not count at the start is.
func unready(state redisstore.State) string {
	if errors.Is(state.Err, redisstore.ErrReplica) {
		return "is a read-only replica"
	}
	return "cannot be reached"
}

// reportStore logs that the store does not answer, or answers again: one line each time.
func reportStore(log *slog.Logger, store string, p weir.Policy, event weir.StoreEvent) {
	if event.Failing {
		log.Error("the store does not answer", "store", store, "error", event.Err, "meanwhile", meanwhile(p))
		return
	}
	log.Info("the store answers again", "store", store, "after", event.For.Round(time.Millisecond), "decided without it", event.Local,
		"units given back", event.Given, "units lost", event.Lost)
}

// meanwhile says what the limiters of a policy do without a store.
func meanwhile(p weir.Policy) string {
	var local, allow, deny int
	for _, l := range p.Limiters {
		switch l.OnStoreFailure {
		case weir.FailAllow:
			allow++
		case weir.FailDeny:
			deny++
		default:
			local++
		}
	}
	var said []string
	for _, mode := range []struct {
		limiters int
		does     string
	}{{local, "counted here (local)"}, {allow, "not limited (allow)"}, {deny, "refused (deny)"}} {
		if mode.limiters > 0 {
			said = append(said, fmt.Sprintf("requests of %s are %s", cli.Count(mode.limiters, "limiter"), mode.does))
		}
	}
	return strings.Join(said, ", ")
}

// storeTrouble says that the store does not count what this server admits; nil where it does. Anybody can ask: why it does not
// is in the log.
func (e *edge) storeTrouble(store *redisstore.Store) error {
	if e.decider.Health().Failing || !store.State().Ready {
		return errStoreSilent
	}
	return nil
}

var errStoreSilent = errors.New("the store does not answer; each limiter does what its on_store_failure says")

// probeEvery is how often a store that does not answer is asked in place of requests.
const probeEvery = time.Second

// keepProbing has a server that is asked little find out that its store answers again, and give it what was counted here. What it returns
// ends that.
func keepProbing(d *weir.Decider) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(probeEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				d.Probe(ctx)
			}
		}
	}()
	return func() error {
		cancel()
		<-done
		return nil
	}
}

// givingBack is how long an ending server tries to give its local counts to the store.
const givingBack = 2 * time.Second

// closeDecider gives the store what was counted here while it did not answer. What it cannot take is lost, which never admits
// too little: it is said, and the server ends as it should.
func closeDecider(d *weir.Decider, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), givingBack)
	defer cancel()
	if err := d.Close(ctx); err != nil {
		log.Warn("units that were counted here do not reach the store", "error", err)
	}
	return nil
}
