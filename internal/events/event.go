package events

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/weirlimit/weir"
)

// Type is the type of every event.
const Type = "limit.reached"

// An Event is one crossing, as a webhook gets it.
type Event struct {
	ID        string `json:"-"` // the same for the same crossing, whoever reports it
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"` // of the request, by the clock that counts; RFC 3339
	Data      Data   `json:"data"`

	fingerprint uint64 // of ID
}

// Data is the content of an event.
type Data struct {
	Limiter    string `json:"limiter"`
	Window     string `json:"window"` // as a policy spells it
	PerSeconds int64  `json:"per_seconds"`
	Percent    int64  `json:"percent"`
	Limit      int64  `json:"limit"` // for this caller
	Used       int64  `json:"used"`
	Remaining  int64  `json:"remaining"`
	Reset      int64  `json:"reset"`      // Unix seconds
	ResetTime  string `json:"reset_time"` // in RFC 3339
	Shadow     bool   `json:"shadow"`     // the limiter refuses nothing
	Local      bool   `json:"local"`      // the store did not answer, so this process counted
	Caller     Caller `json:"caller"`
}

// A Caller describes a caller in an event. It has no address, no session and no secret.
type Caller struct {
	// CountedBy are the key sources that count the caller, joined by "+"; empty in mode shadow.
	CountedBy string `json:"counted_by,omitempty"`
	// Token is the public id of the caller's API token; empty if the window does not count by it.
	Token string `json:"token,omitempty"`
	// Hash is a keyed hash of what the window counts the caller by.
	Hash string `json:"hash"`
}

// minKey is the min length of the key of hashes, in bytes.
const minKey = 16

// event returns what is reported of c.
func (s *Sender) event(c weir.Crossed) Event {
	key := s.options.Key()
	if len(key) < minKey {
		key = s.spare
	}
	w := c.Standing
	e := Event{Type: Type, Timestamp: rfc3339(c.Decision.Now), Data: Data{
		Limiter: w.Limiter.Name, Window: w.Window.String(), PerSeconds: int64(w.Window.Per / time.Second), Percent: c.Percent,
		Limit: w.Limit, Used: w.Count, Remaining: w.Remaining, Reset: w.Reset, ResetTime: rfc3339(w.Reset), Shadow: c.Shadow,
		Local: c.Decision.Outcome != weir.Counted,
	}}
	e.Data.Caller.CountedBy, e.Data.Caller.Token, _ = weir.ShownCaller(w.Window, c.Keys, nil)
	e.Data.Caller.Hash = hex.EncodeToString(keyed(key, "caller", c.Who)[:8])
	// Reset makes each window report its percentages anew. Limit is a part because a caller whose
	// limit was raised reaches another count.
	about := binary.BigEndian.AppendUint64(nil, uint64(w.Reset))
	about = binary.BigEndian.AppendUint64(about, uint64(c.Percent))
	about = binary.BigEndian.AppendUint64(about, uint64(w.Limit))
	about = append(append(about, w.Limiter.Name...), 0)
	about = append(append(about, w.Window.Key.String()...), 0)
	about = binary.BigEndian.AppendUint64(about, uint64(w.Window.Per))
	if w.Window.Requests { // beside one that counts units, with the same length and key
		about = append(about, "requests"...)
	}
	id := keyed(key, "event", append(about, c.Who...))
	e.ID, e.fingerprint = "evt_"+hex.EncodeToString(id[:16]), binary.BigEndian.Uint64(id)
	return e
}

// keyed returns the HMAC of value, for one purpose.
func keyed(key []byte, purpose string, value []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(purpose))
	mac.Write([]byte{0})
	mac.Write(value)
	return mac.Sum(nil)
}

// attributes returns what the log has of an event.
func (e *Event) attributes() []any {
	d := &e.Data
	all := []any{"event", e.ID, "limiter", d.Limiter, "window", d.Window, "percent", d.Percent, "limit", d.Limit, "used", d.Used, "reset", d.Reset}
	if d.Caller.Token != "" {
		all = append(all, "token", d.Caller.Token)
	}
	all = append(all, "caller", d.Caller.Hash)
	if d.Shadow {
		all = append(all, "mode", "shadow")
	}
	if d.Local {
		all = append(all, "counted", "locally")
	}
	return all
}

func rfc3339(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }
