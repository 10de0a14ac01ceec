package weir

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
)

// A model answers as the APIs of language models do. The prompt of a request is one of the
// instructions below.
type model struct {
	asked   atomic.Int64 // requests that it got
	encoded atomic.Int64 // of them, those that may be answered compressed
	release chan struct{}
	ended   chan struct{}
}

// A prompt is what the tests send, and what the model reads of it.
type prompt struct {
	Prompt        string         `json:"prompt"`
	MaxTokens     int            `json:"max_tokens,omitempty"`
	Stream        bool           `json:"stream,omitempty"`
	StreamOptions *streamOptions `json:"stream_options,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// A usage is what a completion has cost.
type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// The instructions of a prompt, each with a number.
const (
	use   = "use "   // a completion of so many tokens
	mute  = "mute "  // the same, and the answer does not tell
	fail  = "fail "  // an answer with this status
	abort = "abort " // a completion that breaks off before it tells
	hold  = "hold "  // a completion that goes on when the test lets it
)

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.asked.Add(1)
	if r.Header.Get("Accept-Encoding") != "" {
		m.encoded.Add(1)
	}
	if r.URL.Path == "/account/login" {
		login(w, r)
		return
	}
	var p prompt
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		p.Prompt = use + "1"
	}
	do, number, _ := strings.Cut(p.Prompt, " ")
	n, _ := strconv.Atoi(number)
	if do+" " == fail {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(n)
		fmt.Fprintf(w, `{"error":{"message":"as you wish"},"usage":{"total_tokens":5}}`)
		return
	}
	if p.Stream {
		m.stream(w, &p, do+" ", n)
		return
	}
	answer := map[string]any{"object": "text_completion", "choices": []any{map[string]any{"text": "Water finds \"usage\": its way."}}}
	if do+" " != mute {
		answer["usage"] = usage{n / 3, n - n/3, n}
	}
	w.Header().Set("Content-Type", "application/json")
	var out io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		out = z
	}
	if err := json.NewEncoder(out).Encode(answer); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// stream answers with server-sent events.
func (m *model) stream(w http.ResponseWriter, p *prompt, do string, n int) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	event := func(data any) {
		text, err := json.Marshal(data)
		if err == nil {
			_, err = fmt.Fprintf(w, "data: %s\n\n", text)
		}
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	for _, word := range []string{"Water ", "finds "} {
		event(map[string]any{"choices": []any{map[string]any{"delta": map[string]string{"content": word}}}, "usage": nil})
	}
	switch do {
	case abort:
		panic(http.ErrAbortHandler)
	case hold:
		select {
		case <-m.release:
		case <-m.ended:
		}
	}
	if p.StreamOptions != nil && p.StreamOptions.IncludeUsage {
		event(map[string]any{"choices": []any{}, "usage": usage{n / 3, n - n/3, n}})
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// login answers 200 if the password is right, and 401 or 403 if it is not.
func login(w http.ResponseWriter, r *http.Request) {
	switch r.FormValue("password") {
	case "right":
	case "locked":
		w.WriteHeader(http.StatusForbidden)
	default:
		w.WriteHeader(http.StatusUnauthorized)
	}
}
