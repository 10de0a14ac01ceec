package edge

import (
	"context"
	"errors"
	"testing"

	"github.com/weirlimit/weir/internal/handover"
)

// A process that does not decide yet starts no other one.
func TestAHandOverWaitsUntilTheProcessDecides(t *testing.T) {
	s, _ := opened(t, testConfig(t, twoPolicy))
	ending := errors.New("it is to end")
	ctx, end := context.WithCancelCause(t.Context())
	end(ending)
	nothing := handover.Command{Path: "/nowhere"} // to start it would be another error
	if err := s.HandOver(ctx, nothing); !errors.Is(err, ending) {
		t.Errorf("before Run: %v, want %v", err, ending)
	}

	running, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	handed := make(chan error, 1)
	go func() { handed <- s.HandOver(t.Context(), nothing) }()
	go func() { ran <- s.Run(running) }()
	if err := <-handed; err == nil || errors.Is(err, ending) {
		t.Errorf("while it decides: %v, want a program that cannot be started", err)
	}
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}
