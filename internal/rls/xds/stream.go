package xds

import (
	"context"
	"errors"
	"fmt"
	"io"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	limits "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/weirlimit/weir/internal/rls/config"
	"github.com/weirlimit/weir/internal/wait"
)

// typeURL is the type of the resources.
const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// maxDetail bounds what the control plane is told about a rejected response, in bytes.
const maxDetail = 4 << 10

// follow asks for all resources, and answers each response: with its version if it is in force now,
// or with the version before and the problems. The first question of a stream has no version: a
// control plane that was restarted counts anew, and would answer nothing to a version that it has.
func (f *follower) follow(ctx context.Context, stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient) (answered bool, err error) {
	ask := &discovery.DiscoveryRequest{Node: &core.Node{Id: f.Node}, TypeUrl: typeURL}
	for {
		if err := stream.Send(ask); err != nil {
			// the reason is what Recv returns
			if _, err := stream.Recv(); err != nil {
				return answered, err
			}
			return answered, errEnded
		}
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return answered, errEnded
		}
		if err != nil {
			return answered, err
		}
		answered = true
		ask = &discovery.DiscoveryRequest{Node: ask.Node, TypeUrl: typeURL, ResponseNonce: response.GetNonce()}
		if err := f.use(response); err != nil {
			f.Log.Error("the rate limit configuration of the control plane cannot be used; the one before stays in force", "version", response.GetVersionInfo(), "error", err)
			detail := err.Error()
			ask.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: detail[:min(len(detail), maxDetail)]}
			if wait.For(ctx, f.Pause) != nil { // a control plane may send the same again at once
				return answered, ctx.Err()
			}
		} else {
			f.version = response.GetVersionInfo()
			f.Log.Info("the rate limit configuration of the control plane is in force", "version", f.version, "resources", len(response.GetResources()))
		}
		ask.VersionInfo = f.version
	}
}

// use puts the resources of a response in force.
func (f *follower) use(response *discovery.DiscoveryResponse) error {
	if response.GetTypeUrl() != typeURL {
		return fmt.Errorf("the response has type %q: expected %s", response.GetTypeUrl(), typeURL)
	}
	all := make([]config.File, len(response.GetResources()))
	for i, from := range response.GetResources() {
		r := new(limits.RateLimitConfig)
		if err := from.UnmarshalTo(r); err != nil {
			return fmt.Errorf("resource %d: %w", i, err)
		}
		if hasUnknown(r.ProtoReflect()) {
			f.Log.Warn("a resource of the control plane has fields that this version does not know; they have no effect", "resource", r.GetName())
		}
		all[i] = config.OfResource(r, i)
	}
	return f.Use(all)
}
