package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir/bench/page"
)

// othersConns is over how many connections the measured clients send.
const othersConns = 4

// others sends requests on time for the length of a turn, and returns the 99th percentile of how
// long after its time each was answered, in milliseconds.
func (p plan) others(ctx context.Context, address string) (p99 float64, err error) {
	clients := make([]*http.Client, othersConns)
	for i := range clients {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: protocols}
		defer transport.CloseIdleConnections()
		clients[i] = &http.Client{Transport: transport, Timeout: 30 * time.Second}
		if err := get(ctx, clients[i], address); err != nil {
			return 0, err
		}
	}
	var mu sync.Mutex
	var took []float64
	var problem error
	var under sync.WaitGroup
	begin, gap := time.Now(), time.Second/time.Duration(p.rate)
	for i := range int(p.length / gap) {
		at := begin.Add(time.Duration(i) * gap)
		time.Sleep(time.Until(at))
		under.Go(func() {
			err := get(ctx, clients[i%othersConns], address)
			late := time.Since(at)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				problem = err
			}
			took = append(took, late.Seconds()*1e3)
		})
	}
	under.Wait()
	return page.Quantile(took, 0.99), problem
}

func get(ctx context.Context, client *http.Client, address string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/x", nil)
	if err != nil {
		return err
	}
	res, err := client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	return nil
}
