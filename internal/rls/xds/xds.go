// Package xds gets configurations of Envoy's rate limit service from a control plane, such as Envoy
// Gateway, over xDS: the aggregated discovery service, state of the world.
//
//	xds.go      Follow: one connection after another
//	stream.go   one stream: a request, responses, and what is answered to each
//	unknown.go  whether a resource has fields that this version does not know
package xds

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/weirlimit/weir/internal/rls/config"
	"github.com/weirlimit/weir/internal/wait"
)

// Options are the settings of Follow. All but TLS and Pause are required.
type Options struct {
	Address string // of the control plane: HOST:PORT
	Node    string // the id by which the control plane knows this server
	// TLS returns what a connection is secured by. It is called for each, so that changed files are
	// used. nil: clear text.
	TLS func() (*tls.Config, error)
	// Use puts the resources of a response in force, all or none. An error goes to the control
	// plane.
	Use func([]config.File) error
	Log *slog.Logger
	// Pause is the shortest time between two connections, and the time before a rejected response
	// is answered; 0 means a second. After failures it doubles, up to thirty times as long.
	Pause time.Duration
}

const (
	maxPause   = 30 // times Options.Pause
	maxMessage = config.MaxSize
)

// Follow asks the control plane for configurations until ctx ends, and connects again when a
// connection ends. What is in force stays meanwhile.
func Follow(ctx context.Context, o Options) {
	if o.Pause == 0 {
		o.Pause = time.Second
	}
	f := &follower{Options: o}
	pause := o.Pause
	for {
		answered, err := f.connection(ctx)
		if ctx.Err() != nil {
			return
		}
		if answered {
			pause = o.Pause
		}
		o.Log.Warn("the control plane of the rate limit configuration cannot be followed; what is in force stays", "address", o.Address, "error", err, "next try", pause.Round(time.Millisecond))
		// up to a half more, so that not all servers come back at once
		if wait.For(ctx, pause+rand.N(pause/2+1)) != nil {
			return
		}
		pause = min(2*pause, maxPause*o.Pause)
	}
}

// A follower is one Follow.
type follower struct {
	Options
	version string // of what is in force; empty: nothing
}

// connection follows one connection until it ends. answered reports whether there was a response.
func (f *follower) connection(ctx context.Context) (answered bool, err error) {
	creds := insecure.NewCredentials()
	if f.TLS != nil {
		secure, err := f.TLS()
		if err != nil {
			return false, err
		}
		creds = credentials.NewTLS(secure)
	}
	conn, err := grpc.NewClient(f.Address, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 5 * time.Minute, Timeout: 20 * time.Second}))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	return f.follow(ctx, stream)
}

var errEnded = errors.New("the control plane has ended the stream")
