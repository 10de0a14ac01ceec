package admin

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime/pprof"
	"strconv"
	"time"
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
	switch kind := r.PathValue("kind"); kind {
	case "cpu":
		seconds := profileSeconds
		if text := r.URL.Query().Get("seconds"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > maxProfileSeconds {
				refuse(w, http.StatusBadRequest, "invalid_query", fmt.Sprintf("seconds must be a whole number from 1 to %d.", maxProfileSeconds))
				return
			}
			seconds = n
		}
		if err := pprof.StartCPUProfile(&profile); err != nil {
			refuse(w, http.StatusConflict, "profile_in_progress", "Another CPU profile is being recorded; a process records one at a time. Try again when it has ended.")
			return
		}
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-r.Context().Done(): // the client has gone
		}
		pprof.StopCPUProfile()
	case "heap", "goroutine":
		if err := pprof.Lookup(kind).WriteTo(&profile, 0); err != nil {
			refuse(w, http.StatusInternalServerError, "internal", "The profile could not be written: "+err.Error()+".")
			return
		}
	default:
		refuse(w, http.StatusNotFound, "not_found", fmt.Sprintf("%.40q is not a profile: expected cpu, heap or goroutine.", kind))
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.Itoa(profile.Len()))
	_, _ = w.Write(profile.Bytes()) // the client may be gone
}
