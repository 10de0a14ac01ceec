package admin

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/weirlimit/weir/internal/wait"
)

// How long a CPU profile takes, in seconds. An answer must be written within writeTime.
const (
	profileSeconds    = 10
	maxProfileSeconds = 50
)

// showProfile answers GET /profile/{kind}: where this process spends processor time or memory, in
// the format that 'go tool pprof' reads. A profile has names of functions, and nothing of callers.
func (s *Server) showProfile(w http.ResponseWriter, r *http.Request) {
	var profile bytes.Buffer
	kind := r.PathValue("kind")
	seconds, ok := profileTime(kind, r.URL.Query())
	switch {
	case kind != "cpu" && kind != "heap" && kind != "goroutine":
		refuse(w, http.StatusNotFound, "not_found", fmt.Sprintf("%.40q is not a profile: expected cpu, heap or goroutine.", kind))
		return
	case !ok:
		refuse(w, http.StatusBadRequest, "invalid_query", fmt.Sprintf("Only cpu has a query parameter: seconds, once, with a whole number from 1 to %d.", maxProfileSeconds))
		return
	case kind == "cpu":
		if err := pprof.StartCPUProfile(&profile); err != nil {
			refuse(w, http.StatusConflict, "profile_in_progress", "Another CPU profile is being recorded; a process records one at a time. Try again when it has ended.")
			return
		}
		_ = wait.For(r.Context(), seconds) // or until the client is gone
		pprof.StopCPUProfile()
	default:
		if err := pprof.Lookup(kind).WriteTo(&profile, 0); err != nil {
			refuse(w, http.StatusInternalServerError, "internal", "The profile could not be written: "+err.Error()+".")
			return
		}
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.Itoa(profile.Len()))
	_, _ = w.Write(profile.Bytes()) // the client may be gone
}

// profileTime returns for how long a profile is recorded, and false if the query is not valid.
func profileTime(kind string, query url.Values) (time.Duration, bool) {
	if len(query) == 0 {
		return profileSeconds * time.Second, true
	}
	values := query["seconds"]
	if kind != "cpu" || len(query) != 1 || len(values) != 1 {
		return 0, false
	}
	n, err := strconv.Atoi(values[0])
	return time.Duration(n) * time.Second, err == nil && n >= 1 && n <= maxProfileSeconds
}
