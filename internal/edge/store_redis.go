package edge

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

// openRedis opens a store that other nodes count in too, and a store in this process, which counts
// by the clock of the shared one while that does not answer.
func openRedis(ctx context.Context, at redisstore.Options, o *opening) (*openStore, error) {
	at.Now, at.Log, at.Leases = o.Now, o.Log, o.Leases
	at.Timeout = max(2*time.Second, 2*o.StoreDeadline)
	if o.KeySecret != "" {
		secret, err := readSecret(o.KeySecret)
		if err != nil {
			return nil, cli.Fail(fmt.Errorf("read the secret of --key-secret: %w", err), fileHint(err, "give all nodes the same file, such as the output of: openssl rand -hex 32"))
		}
		at.Secret = secret
	}
	store, err := redisstore.New(ctx, at)
	if err != nil {
		return nil, noRedis(at, err)
	}
	o.own.own(store.Close)
	policy := o.Policy.Policy
	if err := store.Check(policy); err != nil {
		return nil, cli.Fail(fmt.Errorf("count in %s: %w", place(at), err), "'weir policy check FILE' shows where; one server that is not a cluster counts such a policy too")
	}
	local, err := memstore.New(memstore.Options{Memory: o.Memory, Now: store.Now, Log: o.Log})
	if err != nil {
		return nil, noCounts(o.Data, err)
	}
	o.own.own(local.Close)
	if o.Leases == redisstore.LeasesOff && slices.ContainsFunc(policy.Limiters, func(l weir.Limiter) bool { return l.OnStoreFailure.SpendsPocket() }) {
		o.Log.Warn("on_store_failure: pocket has no effect without leases: give --leases auto too")
	}
	state := store.State()
	if !state.Ready {
		o.Log.Error("the store "+unready(state)+"; the server starts without it and uses it as soon as it answers",
			"store", place(at), "error", state.Err, "meanwhile", meanwhile(policy))
	}
	return &openStore{
		counts:   store,
		line:     redisLine(at, state, o.Memory),
		table:    local.Stats,
		fallback: local,
		outage:   func(p weir.Policy, e failover.Event) { logOutage(o.Log, place(at), p, e) },
		check:    store.Check,
		ready:    func() bool { return store.State().Ready },
		secret:   store.Secret,
		figures:  store.Stats,
	}, nil
}

// The bounds of a file that holds a secret, in bytes (D14, D18: 32 bytes make a secret).
const (
	minSecret = 32
	maxSecret = 64 << 10
)

// readSecret reads a secret from a file, as --jwt-key does: one newline at its end is not part of
// it.
func readSecret(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	if err != nil {
		return nil, err
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	if len(b) < minSecret || len(b) > maxSecret {
		return nil, fmt.Errorf("%s: expected a secret of %d bytes to %d KiB", path, minSecret, maxSecret>>10)
	}
	return b, nil
}

// noRedis returns the failure of a shared store that cannot be used, even after a wait.
func noRedis(at redisstore.Options, err error) error {
	hint := ""
	var rights *redisstore.RightsError
	switch {
	case errors.As(err, &rights):
		hint = "on the server: ACL SETUSER " + cmp.Or(at.Username, "default") + " " + redisstore.ACLRules(at.Prefix)
	case errors.Is(err, redisstore.ErrDenied):
		hint = "is the password right? --store redis://USER:PASSWORD@HOST:PORT, or :PASSWORD@ for one without a user; in WEIR_STORE it is kept out of ps"
		if at.Master != "" {
			hint = "are the passwords right? the one before the hosts is the server's, ?sentinel_password= the Sentinels'; in WEIR_STORE they are kept out of ps"
		}
	case errors.Is(err, redisstore.ErrSecret):
		hint = "give all nodes the same --key-secret, or give it to none; to use another secret, use another ?prefix= too"
	case errors.Is(err, redisstore.ErrServer):
		hint = "--store needs Redis 6.2, Valkey or later: one server, with a database that exists there, or nodes of one cluster, or Sentinels"
	}
	return cli.Fail(fmt.Errorf("open the store: %w", err), hint)
}

// place returns the name of a store, without user and password.
func place(at redisstore.Options) string {
	hosts := strings.Join(at.Addresses, ",")
	if at.Master != "" {
		return fmt.Sprintf("redis %s, by Sentinel %s", at.Master, hosts)
	}
	return "redis " + hosts
}

// redisLine returns the start-up line of a shared store; memory is that of the counts in this
// process.
func redisLine(at redisstore.Options, state redisstore.State, memory int64) string {
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
	if at.Leases != redisstore.LeasesOff {
		b.WriteString(", leases units of busy windows")
	}
	if state.Ready {
		fmt.Fprintf(&b, "; %v here while it does not answer", size(memory))
	} else {
		fmt.Fprintf(&b, ": it %s, counting here until it answers, in %v", unready(state), size(memory))
	}
	return b.String()
}

// unready describes a store that does not count at the start.
func unready(state redisstore.State) string {
	if errors.Is(state.Err, redisstore.ErrReplica) {
		return "is a read-only replica"
	}
	return "cannot be reached"
}

// logOutage writes one log line when the store stops answering, and one when it answers again.
func logOutage(log *slog.Logger, store string, p weir.Policy, e failover.Event) {
	if e.Failing {
		log.Error("the store does not answer", "store", store, "error", e.Err, "meanwhile", meanwhile(p))
		return
	}
	log.Info("the store answers again", "store", store, "after", e.For.Round(time.Millisecond), "decided without it", e.Local,
		"units given back", e.Given, "units lost", e.Lost)
}

// meanwhile describes what the limiters of a policy do during an outage.
func meanwhile(p weir.Policy) string {
	var local, allow, deny, pocket int
	for _, l := range p.Limiters {
		if l.OnStoreFailure.SpendsPocket() {
			pocket++
		}
		switch l.OnStoreFailure.Then() {
		case weir.FailAllow:
			allow++
		case weir.FailDeny:
			deny++
		default:
			local++
		}
	}
	var all []string
	for _, mode := range []struct {
		limiters int
		does     string
	}{{local, "counted here (local)"}, {allow, "not limited (allow)"}, {deny, "refused (deny)"}} {
		if mode.limiters > 0 {
			all = append(all, fmt.Sprintf("requests of %s are %s", cli.Count(mode.limiters, "limiter"), mode.does))
		}
	}
	if pocket > 0 {
		all = append(all, fmt.Sprintf("those of %s first use up what this node has leased, if anything", cli.Count(pocket, "limiter")))
	}
	return strings.Join(all, ", ")
}
