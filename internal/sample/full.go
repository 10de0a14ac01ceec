package sample

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// sharesUsedUp are the messages for callers whose share of the storage is used up. Each has a way
// out.
var sharesUsedUp = map[sqlite.Share]string{
	sqlite.OfSession:   "this session's share of the server's storage is used up and nothing was stored: POST /api/v1/widget/init starts another session",
	sqlite.OfAddress:   "your address's share of the server's storage is used up and nothing was stored: what was stored from it is deleted after 30 days, or the operator raises --max-data",
	sqlite.OfNetwork:   "your network's share of the server's storage is used up and nothing was stored: what was stored from it is deleted after 30 days, or the operator raises --max-data",
	sqlite.OfWorkspace: "the share of the server's storage that this workspace's visitors have is used up and nothing was stored: what they stored is deleted after 30 days, or the operator raises --max-data",
	sqlite.OfVisitors:  "the visitors' share of the server's storage is used up and nothing was stored: what they stored is deleted after 30 days, or the operator raises --max-data",
	sqlite.OfDocuments: "the documents' share of the server's storage is used up and nothing was stored: delete documents, or the operator raises --max-data",
}

// full returns the 507 for a request whose rows have no room, and logs it.
func (b *Backend) full(r *request, err error) *refusal {
	var share *sqlite.ShareError
	if !errors.As(err, &share) {
		b.log.Error("sample backend: storage full", "route", r.route.String(), "error", err)
		return refuse(http.StatusInsufficientStorage, "the server's storage is full and nothing was stored: documents must be deleted, or its operator must make room")
	}
	if again, report := b.fulls.count(share, r.now); report {
		b.log.Error("sample backend: storage full", "route", r.route.String(), "share", share.Share, "workspace", share.Workspace,
			"error", err, "since_last", again)
	}
	return refuse(http.StatusInsufficientStorage, "%s", sharesUsedUp[share.Share])
}

// fullLogInterval is the min time between two log lines about the same kind of share of one
// workspace. A caller that has used up its share can repeat its request as often as limiters allow,
// and must not fill the log.
const fullLogInterval = time.Minute

// maxFulls bounds the entries of fulls. Only an operator creates workspaces, so the bound is not
// reached in practice.
const maxFulls = 1024

// fulls remembers the last log line about each full share. The zero value is ready to use. It is
// safe for concurrent use.
type fulls struct {
	mu   sync.Mutex
	last map[sqlite.ShareError]*lastFull
}

type lastFull struct {
	at    time.Time
	since int64 // number of refusals since then
}

// count counts a refusal. It reports whether to log it, and then how many there were since the last
// log line.
func (f *fulls) count(e *sqlite.ShareError, now time.Time) (since int64, report bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	about := sqlite.ShareError{Share: e.Share, Workspace: e.Workspace}
	last := f.last[about]
	if last == nil {
		if f.last == nil || len(f.last) >= maxFulls {
			f.last = map[sqlite.ShareError]*lastFull{}
		}
		last = &lastFull{at: now.Add(-fullLogInterval)}
		f.last[about] = last
	}
	last.since++
	if now.Sub(last.at) < fullLogInterval {
		return 0, false
	}
	since, last.at, last.since = last.since, now, 0
	return since, true
}
