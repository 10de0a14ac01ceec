package relay

import (
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
)

// A Side is one side of a tunnel.
type Side struct {
	From io.Reader // what comes from it
	To   io.Writer // what goes to it
	Conn           // the connection of both
}

// A Conn is a connection with halves.
type Conn interface {
	Close() error
	CloseWrite() error
}

// Tunnel passes what each side sends on to the other, until both have ended or one has failed,
// which closes both. halfEnded, if it is not nil, is called when one has ended and the other may go
// on.
func (b *Buffers) Tunnel(client, up Side, log *slog.Logger, halfEnded func()) {
	way := func(from, to Side) {
		defer func() {
			if failure := recover(); failure != nil {
				log.Error("copying for a websocket panicked", "panic", failure, "stack", string(debug.Stack()))
				_ = from.Close()
				_ = to.Close()
			}
		}()
		if _, received, sent := b.Copy(to.To, from.From, Plain); received == nil && sent == nil && to.CloseWrite() == nil {
			if halfEnded != nil {
				halfEnded()
			}
			return
		}
		_ = to.Close()
		_ = from.Close()
	}
	var both sync.WaitGroup
	both.Go(func() { way(client, up) })
	way(up, client)
	both.Wait() // also after a panic: until then the tunnel is open
}
