package main

import (
	"net/http/httptest"
	"testing"

	"github.com/weirlimit/weir/examples/go/internal/exact"
)

func TestTheServiceIsLimitedExactly(t *testing.T) {
	exact.Service(t, func(t *testing.T) string {
		s := httptest.NewServer(service())
		t.Cleanup(s.Close)
		return s.URL
	})
}
