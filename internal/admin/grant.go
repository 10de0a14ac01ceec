package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// MaxGrant is the max duration of a grant.
const MaxGrant = 366 * 24 * time.Hour

func unprocessable(code, format string, args ...any) *refusal {
	return &refusal{http.StatusUnprocessableEntity, code, fmt.Sprintf(format, args...)}
}

// grantKeys answers POST /keys/grant.
func (s *Server) grantKeys(w http.ResponseWriter, r *http.Request) {
	c, ok := readChange(w, r)
	if !ok {
		return
	}
	if c.Limiter == "" && c.Denial == "" {
		unprocessable("no_limiter", "limiter is required: a grant is for one limiter.").write(w)
		return
	}
	if (c.Times == nil) == (c.Limits == nil) {
		unprocessable("no_limits", `Either "times": 2 or "limits": [LIMIT, …] is required; "limits": [] takes grants back.`).write(w)
		return
	}
	s.change(w, r, c, "grant", func(ctx context.Context, n *named, limiters []*weir.Limiter, before *CallerWindows) (planned, error) {
		l := limiters[0]
		windows := slices.DeleteFunc(slices.Clone(before.Windows), func(w CallerWindow) bool { return w.InFlight })
		if len(windows) == 0 {
			return planned{}, unprocessable("in_flight", "Limiter %s only has a limit in flight, which cannot be granted; change its in_flight in the policy.", l.Name)
		}
		limits, err := c.limits(n, l, windows)
		if err != nil {
			return planned{}, err
		}
		until := int64(0)
		after := map[string]any{"limits": limits}
		if len(limits) > 0 {
			if until, err = c.until(before.Now); err != nil {
				return planned{}, err
			}
			after["until"] = until
		}
		return planned{after: after, do: func(l *weir.Limiter, caller weir.Keys) error {
			return s.options.Decider.Grant(ctx, l.Name, caller, limits, until)
		}}, nil
	})
}

// limits returns one limit for each window. It is 0 if the window is not known, is shared by all
// callers or keeps its limit. An empty list means that grants are taken back.
func (c *change) limits(n *named, l *weir.Limiter, windows []CallerWindow) ([]int64, error) {
	limits := make([]int64, len(windows))
	if c.Times != nil {
		times, ok := number(*c.Times)
		if !ok || times < 1 || times > weir.MaxLimit {
			return nil, unprocessable("invalid_times", "times must be a whole number from 1 to %d.", weir.MaxLimit)
		}
		if byNetwork(l) && !n.hasAddr() {
			return nil, unprocessable("address_unknown", "Limiter %s has other limits for some networks, and the caller's address is not known, so times cannot be applied; name ip too, or give limits.", l.Name)
		}
		if byPlan(windows) {
			return nil, unprocessable("plan_unknown", "Limiter %s has other limits by plan, and the caller's plan is not known, so times cannot be applied; give limits, or name the denial of one of its refusals.", l.Name)
		}
		for i, w := range windows {
			if w.Lacks != "" || w.Everyone {
				continue
			}
			if w.Declared > weir.MaxLimit/times {
				return nil, unprocessable("limit_out_of_range", "%d times %d exceeds the maximum; 1 to %d is allowed.", times, w.Declared, weir.MaxLimit)
			}
			limits[i] = times * w.Declared
		}
		return limits, nil
	}
	if len(*c.Limits) == 0 {
		return nil, nil
	}
	if len(*c.Limits) != len(windows) {
		return nil, unprocessable("wrong_number_of_limits", "Limiter %s has windows: %d. One limit for each is needed, in the policy's order; 0 keeps a limit.", l.Name, len(windows))
	}
	some := false
	for i, text := range *c.Limits {
		limit, ok := number(text)
		if !ok || limit < 0 || limit > weir.MaxLimit {
			return nil, unprocessable("limit_out_of_range", "Limit %.40q for %q: 1 to %d is allowed, 0 leaves it as it is.", text.String(), windows[i].Window, weir.MaxLimit)
		}
		if limit > 0 && windows[i].Lacks != "" {
			return nil, unprocessable("not_counted", "For %q the caller is not known; name %s too, or give 0.", windows[i].Window, windows[i].Lacks)
		}
		if limit > 0 && windows[i].Everyone {
			return nil, unprocessable("shared_window", "All callers share %q, so a grant for one of them cannot change it; give 0.", windows[i].Window)
		}
		if limit > 0 && limit < l.Cost && l.Reserve.From == (weir.Reading{}) && !l.Windows[i].Requests {
			return nil, unprocessable("limit_out_of_range", "Limit %d for %q is less than the cost of one request, %d: every request would be refused.", limit, windows[i].Window, l.Cost)
		}
		limits[i] = limit
		some = some || limit > 0
	}
	if !some {
		return nil, unprocessable("no_limits", `All limits are 0, which changes nothing; "limits": [] takes grants back.`)
	}
	return limits, nil
}

// byNetwork reports whether a limiter has other limits for some networks.
func byNetwork(l *weir.Limiter) bool {
	return slices.ContainsFunc(l.Overrides, func(o weir.Override) bool { return o.For.Network.IsValid() })
}

// until returns the second at which the grant ends. now is the second on the store's clock.
func (c *change) until(now int64) (int64, error) {
	latest := now + int64(MaxGrant/time.Second)
	const form = "until must be a future time, as in 2006-01-02T15:04:05Z or in Unix seconds, or for must be a duration such as 2h"
	var until int64
	switch at := c.Until.(type) {
	case nil:
		d, err := time.ParseDuration(c.For)
		if c.For == "" || err != nil {
			return 0, unprocessable("invalid_until", "%s.", form)
		}
		until = now + int64(d/time.Second)
	case string:
		t, err := time.Parse(time.RFC3339, at)
		if err != nil || c.For != "" {
			return 0, unprocessable("invalid_until", "%s.", form)
		}
		until = t.Unix()
	case json.Number:
		n, ok := number(at)
		if !ok || c.For != "" {
			return 0, unprocessable("invalid_until", "%s.", form)
		}
		until = n
	default:
		return 0, unprocessable("invalid_until", "%s.", form)
	}
	if until <= now {
		return 0, unprocessable("until_past", "until %s is in the past: the store's clock is at %s, and a later time is needed.", stamp(until), stamp(now))
	}
	if until > latest {
		return 0, unprocessable("until_too_late", "until %s is more than a year away: %s is the latest.", stamp(until), stamp(latest))
	}
	return until, nil
}

// endsEarly reports whether a grant that raises the limit of a window ends before the window
// resets. A window that is not open is taken to begin now.
func endsEarly(h *weir.WindowState) bool {
	if h.Grant.Limit <= h.Declared || h.InFlight {
		return false
	}
	reset := h.Reset
	if reset == 0 {
		reset = h.Now + int64(h.Window.Per/time.Second)
		if ends, err := weir.NewEnds(h.Limiter, h.Window); err == nil && ends != nil {
			reset = ends.After(h.Now)
		}
	}
	return h.Grant.Until < reset
}

// stamp formats Unix seconds as RFC 3339.
func stamp(second int64) string { return time.Unix(second, 0).UTC().Format(time.RFC3339) }
