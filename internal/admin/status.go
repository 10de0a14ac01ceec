package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/internal/watch"
	"github.com/weirlimit/weir/memstore"
)

// A status is the data that the dashboard reads once a second. Times are Unix seconds.
type status struct {
	Now       int64           `json:"now"` // on this machine's clock
	Version   string          `json:"version"`
	Started   int64           `json:"started"`
	Uptime    int64           `json:"uptime"` // seconds
	InFlight  int64           `json:"in_flight"`
	Demo      bool            `json:"demo"`
	Token     tokenState      `json:"token"`   // of this request
	Changes   int64           `json:"changes"` // another number after each entry of the audit log
	Policy    policyState     `json:"policy"`
	Candidate *policyState    `json:"candidate"` // null: there is none
	Store     storeState      `json:"store"`
	Table     *memstore.Stats `json:"table"`
	Watch     *watch.Snapshot `json:"watch"`
	// Upstreams are the backend's addresses, those that are down first, at most 200; null: there is
	// no upstream. UpstreamsInAll is how many there are, UpstreamsDown how many of them are down,
	// and UpstreamsCut whether some are left out.
	Upstreams      []Upstream `json:"upstreams"`
	UpstreamsInAll int        `json:"upstreams_in_all"`
	UpstreamsDown  int        `json:"upstreams_down"`
	UpstreamsCut   bool       `json:"upstreams_cut"`
}

// An Upstream is one address of the backend of a site.
type Upstream struct {
	Site     string `json:"site"`    // as --upstream names it; *: all other hosts
	Address  string `json:"address"` // as a URL
	Up       bool   `json:"up"`      // false from a failure until it answers again
	Since    int64  `json:"since"`   // Unix seconds; since when it is up or down
	InFlight int    `json:"in_flight"`
	Failures uint64 `json:"failures"` // that counted against it since the start

	// Requests of the whole site that the gateway answered because no address did.
	Unavailable int64 `json:"answered_502"`
	Late        int64 `json:"answered_504"`
}

// maxUpstreams is the max number of addresses in one answer.
const maxUpstreams = 200

// addUpstreams adds the backend's addresses. An address that has never changed is up since the
// start.
func (s *status) addUpstreams(all []Upstream) {
	for i := range all {
		if all[i].Since == 0 {
			all[i].Since = s.Started
		}
		if !all[i].Up {
			s.UpstreamsDown++
		}
	}
	slices.SortStableFunc(all, func(a, b Upstream) int {
		switch {
		case a.Up == b.Up:
			return 0
		case a.Up:
			return 1
		}
		return -1
	})
	s.Upstreams, s.UpstreamsInAll, s.UpstreamsCut = all[:min(len(all), maxUpstreams)], len(all), len(all) > maxUpstreams
}

// A tokenState is what a token is, without its secret.
type tokenState struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	// May are the changes that the token may make: the paths of its POST endpoints, without the
	// first slash.
	May []string `json:"may"`
}

func newTokenState(t NamedToken) tokenState {
	out := tokenState{Name: t.Name, Role: t.Role, May: []string{}}
	for _, e := range endpoints() {
		if e.method == http.MethodPost && t.Role.includes(e.needs) {
			out.May = append(out.May, strings.TrimPrefix(e.path, "/"))
		}
	}
	return out
}

type storeState struct {
	Kind  string `json:"kind"`
	Up    bool   `json:"up"`
	Since int64  `json:"since"` // when it became unavailable; 0 while it is available
	Error string `json:"error,omitempty"`
	// Leases is what was leased; null: nothing was.
	Leases *Leases `json:"leases"`
}

// Leases are totals since the start, of units that a shared store had charged before requests had
// them.
type Leases struct {
	Takes    int64 `json:"takes"`     // requests' takes that they served, without the store
	Granted  int64 `json:"granted"`   // units that the store charged
	Returned int64 `json:"returned"`  // that went back in time
	HeldBack int64 `json:"held_back"` // that went back to a window that was spent
	Stranded int64 `json:"stranded"`  // that stay spent until the reset
	Claims   int64 `json:"claims"`    // refusals while other nodes may have held units
}

// add reports an outage.
func (s *storeState) add(h failover.Health) {
	if !h.Failing {
		return
	}
	s.Up, s.Since = false, unix(h.Since)
	if h.Err != nil {
		s.Error = h.Err.Error()
	}
}

// showStatus answers GET /status.
func (s *Server) showStatus(w http.ResponseWriter, r *http.Request) {
	var query watch.Query
	q := r.URL.Query()
	for name, values := range q {
		n, err := strconv.ParseUint(values[0], 10, 63)
		if err != nil || len(values) != 1 {
			refuse(w, http.StatusBadRequest, "invalid_query", fmt.Sprintf("Query parameter %.40q: after, seconds and top are allowed, each once, with a whole number.", name))
			return
		}
		switch name {
		case "after":
			query.After = n
		case "seconds":
			query.Seconds = int(min(n, 300))
		case "top":
			query.Top = int(min(n, 128))
		default:
			refuse(w, http.StatusBadRequest, "invalid_query", fmt.Sprintf("Query parameter %.40q: after, seconds and top are allowed.", name))
			return
		}
	}
	o := &s.options
	now := o.Now()
	out := status{
		Now: now.Unix(), Version: o.Version, Started: s.started.Unix(), Uptime: int64(now.Sub(s.started).Seconds()), Demo: o.Demo,
		Token: newTokenState(requester(r)), Changes: o.Audit.Size(),
		Policy: newPolicyState(o.Policy.State()),
		Store:  storeState{Kind: o.StoreKind, Up: true},
	}
	if state, ok := o.Policy.Candidate(); ok {
		candidate := newPolicyState(state)
		out.Candidate = &candidate
	}
	if o.Health != nil {
		out.Store.add(o.Health())
	}
	if o.Leases != nil {
		if all := o.Leases(); all != (Leases{}) {
			out.Store.Leases = &all
		}
	}
	if o.InFlight != nil {
		out.InFlight = o.InFlight()
	}
	if o.Upstreams != nil {
		out.addUpstreams(o.Upstreams())
	}
	if o.Table != nil {
		table := o.Table()
		out.Table = &table
	}
	if o.Recorder != nil {
		snapshot := o.Recorder.Snapshot(query)
		out.Watch = &snapshot
	}
	answer(w, http.StatusOK, out)
}

// maxEntries is the max number of lines of the audit log in one answer.
const maxEntries = 1000

// showAudit answers GET /audit.
func (s *Server) showAudit(w http.ResponseWriter, r *http.Request) {
	last := 100
	if text := r.URL.Query().Get("last"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxEntries {
			refuse(w, http.StatusBadRequest, "invalid_query", fmt.Sprintf("last must be a whole number from 1 to %d.", maxEntries))
			return
		}
		last = n
	}
	entries, err := s.options.Audit.Last(last)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "audit_unavailable", err.Error())
		return
	}
	answer(w, http.StatusOK, map[string]any{"entries": entries})
}
