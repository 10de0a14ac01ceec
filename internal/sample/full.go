package sample

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// sharesUsedUp says what a caller can do if a share of the storage is used up.
var sharesUsedUp = map[sqlite.Share]string{
	sqlite.OfSession:   "this session's share of the server's storage is used up and nothing was stored: POST /api/v1/widget/init starts another session",
	sqlite.OfAddress:   "your address's share of the server's storage is used up and nothing was stored: what was stored from it is deleted after 30 days, or the operator raises --max-data",
	sqlite.OfNetwork:   "your network's share of the server's storage is used up and nothing was stored: what was stored from it is deleted after 30 days, or the operator raises --max-data",
	sqlite.OfWorkspace: "the share of the server's storage that this workspace's visitors have is used up and nothing was stored: what they stored is deleted after 30 days, or the operator raises --max-data",
	sqlite.OfVisitors:  "the visitors' share of the server's storage is used up and nothing was stored: what they stored is deleted after 30 days, or the operator raises --max-data",
	sqlite.OfDocuments: "the documents' share of the server's storage is used up and nothing was stored: delete documents, or the operator raises --max-data",
}

// full refuses a request whose rows have no room.
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

// fullEvery is the least time between two log lines about one workspace's shares of a kind. Whoever
// uses up a share can go on asking as often as limiters let it, and the log must not become what it
// fills.
const fullEvery = time.Minute

// mostFulls bounds what fulls remembers. Workspaces are the operator's, so it is never more in
// earnest.
const mostFulls = 1024

// fulls remembers what the log was told about used up shares. The zero value is ready; it is safe
// for concurrent use.
type fulls struct {
	mu   sync.Mutex
	told map[sqlite.ShareError]*lastFull
}

type lastFull struct {
	at    time.Time
	since int64 // refusals since then
}

// count counts a refusal. It returns whether the log is to report it, and then how many there were
// since the last report.
func (f *fulls) count(e *sqlite.ShareError, now time.Time) (since int64, report bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	about := sqlite.ShareError{Share: e.Share, Workspace: e.Workspace}
	last := f.told[about]
	if last == nil {
		if f.told == nil || len(f.told) >= mostFulls {
			f.told = map[sqlite.ShareError]*lastFull{}
		}
		last = &lastFull{at: now.Add(-fullEvery)}
		f.told[about] = last
	}
	last.since++
	if now.Sub(last.at) < fullEvery {
		return 0, false
	}
	since, last.at, last.since = last.since, now, 0
	return since, true
}
