package edge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/handover"
	"github.com/weirlimit/weir/memstore"
)

// HandOver starts another process with c, which serves in place of this one, at the same sockets
// and with the same counts. It returns nil once that process decides. The caller then ends the
// context of Run: this process accepts nothing more, and its requests in flight may finish. What
// they still count, they count in the other process.
//
// After an error the other process has ended, and this one serves on as before, with its counts. If
// it could not take the counts back, it refuses every request that it should count, and must end:
// the error wraps handover.ErrNoCounts. If ctx ends before the other process decides, that is such
// an error; later, the other process drains too.
//
// HandOver waits until Run decides. It is called once at a time, and not again after it has
// returned nil.
func (s *Server) HandOver(ctx context.Context, c handover.Command) error {
	if os.Getpid() == 1 {
		return errors.New("start the next process: this is process 1 of a container, which would end with it; start another container instead")
	}
	select {
	case <-s.deciding:
	case <-ctx.Done():
		return fmt.Errorf("start the next process: %w", context.Cause(ctx))
	}
	log := s.config.Log
	next, err := handover.Start(c, s.listeners.toNext)
	if err != nil {
		return err
	}
	log.Info("the next process is starting", "pid", next.PID(), "program", c.Path)
	if err := next.AwaitOpen(ctx); err != nil {
		return err
	}
	begun := time.Now()
	err = next.Give(ctx, s.counter.store.here, func(pid int) { s.manager.send(fmt.Sprintf("MAINPID=%d", pid)) })
	if errors.Is(err, memstore.ErrNoMapping) {
		return cli.Fail(err, "restart the server instead")
	}
	if err != nil {
		return err
	}
	s.manager.handed.Store(true)
	s.listeners.handedOver()
	s.public.gateway.LingerFor(Goodbye)
	if s.check != nil {
		s.check.door.LingerFor(Goodbye)
	}
	if s.rls != nil {
		s.rls.door.HandedOver()
	}
	s.doors.handedOver()
	log.Info("the next process serves; requests in flight may finish here", "pid", next.PID(), "took", time.Since(begun))
	return nil
}
