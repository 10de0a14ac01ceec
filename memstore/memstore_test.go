package memstore_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (weir.Store, storetest.Clock) {
		clock := storetest.StartManualClock()
		store, err := memstore.New(memstore.Options{Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		return store, clock
	})
}
