package rls

import (
	"context"
	"fmt"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirlimit/weir/internal/rls/config"
)

// A rule is a rule of the configuration, ready for requests.
type rule struct {
	*config.Rule
	current  *pb.RateLimitResponse_RateLimit
	stat     *stat            // nil: its name has values of the request
	metadata *structpb.Struct // nil: none
}

// SetConfig replaces the configuration for every later request. Counts go on. It returns an error
// if metadata cannot be sent, and then keeps the configuration before.
func (s *Service) SetConfig(c *config.Config) error {
	next := &rules{c, make(map[*config.Rule]*rule, c.Limits)}
	for r, values := range c.Rules {
		ready := &rule{Rule: r, current: currentLimit(r.Requests, r.Unit, r.Name)}
		if len(r.Metadata) > 0 {
			var err error
			if ready.metadata, err = structpb.NewStruct(r.Metadata); err != nil {
				return fmt.Errorf("%s:%d: metadata: %w", r.File, r.Line, err)
			}
		}
		if !values && !r.Unlimited {
			ready.stat = s.metrics.byPath(r.Path)
		}
		next.of[r] = ready
	}
	s.rules.Store(next)
	s.metrics.loaded.Add(1)
	return nil
}

// Loaded describes the configuration in force: "2 domains, 5 limits".
func (s *Service) Loaded() string {
	c := s.rules.Load()
	if c == nil {
		return "no configuration"
	}
	return plural(c.Domains(), "domain") + ", " + plural(c.Limits, "limit")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Load reads the configuration at path and puts it in force. files are what was read, for Follow.
func (s *Service) Load(path string, o config.Options) (files []config.File, err error) {
	if files, err = config.Files(path); err == nil {
		err = s.Use(files, path, o)
	}
	return files, err
}

// Use puts files in force that were read, or that a control plane has sent. from is the path or the
// control plane, for a warning of a configuration without domains, which is what an empty directory
// is.
func (s *Service) Use(files []config.File, from string, o config.Options) error {
	c, err := config.Parse(files, o)
	if err == nil {
		err = s.SetConfig(c)
	}
	switch {
	case err != nil:
		s.metrics.refused.Add(1)
	case c.Domains() == 0:
		s.options.Log.Warn("the rate limit configuration is empty: no request is limited", "from", from)
	}
	return err
}

// Follow puts the configuration at path in force when it changes, until ctx ends. files are what
// was loaded. A configuration with problems is logged, and the one before stays in force.
func (s *Service) Follow(ctx context.Context, path string, o config.Options, files []config.File) {
	f := config.NewFollower(path, files, time.Now())
	ticker := time.NewTicker(config.LookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			files, err := f.Look(now)
			if err == nil && files == nil {
				continue
			}
			if err == nil {
				err = s.Use(files, path, o)
			}
			if err != nil {
				s.options.Log.Error("the rate limit configuration cannot be used; the one before stays in force", "path", path, "error", err)
				continue
			}
			s.options.Log.Info("the rate limit configuration has changed", "path", path, "domains", s.rules.Load().Domains(), "limits", s.rules.Load().Limits)
		}
	}
}
