package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir/bench/servers"
)

// figures are the result of one turn.
type figures struct {
	rate  float64 // requests a second
	cpu   float64 // of all servers, microseconds a request
	asked float64 // of what nginx asks, microseconds a request
}

const callers = 32

// turn asks for a while, and for an eighth of that before without counting.
func (c contestant) turn(length time.Duration) (figures, error) {
	if _, err := c.ask(length / 8); err != nil {
		return figures{}, err
	}
	before, err := c.cpu()
	if err != nil {
		return figures{}, err
	}
	start := time.Now()
	n, err := c.ask(length)
	took := time.Since(start)
	after, cpuErr := c.cpu()
	if err := errors.Join(err, cpuErr); err != nil {
		return figures{}, err
	}
	each := func(i int) float64 { return float64((after[i] - before[i]).Microseconds()) / float64(n) }
	return figures{float64(n) / took.Seconds(), each(0), each(1)}, nil
}

// cpu returns the CPU time of all servers, and of what nginx asks.
func (c contestant) cpu() (all [2]time.Duration, err error) {
	all[0], err = servers.CPU(c.pids...)
	if err == nil && c.asks != 0 {
		all[1], err = servers.CPU(c.asks)
	}
	return all, err
}

// ask returns how many requests were answered 200.
func (c contestant) ask(length time.Duration) (n int, failed error) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	end := time.Now().Add(length)
	for range callers {
		asking.Go(func() {
			own, err := c.askUntil(end)
			mu.Lock()
			defer mu.Unlock()
			n, failed = n+own, errors.Join(failed, err)
		})
	}
	asking.Wait()
	return n, failed
}

func (c contestant) askUntil(end time.Time) (n int, err error) {
	conn, err := net.Dial("tcp", c.at)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	const head = "GET /things?q=1 HTTP/1.1\r\nHost: example.com\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"
	from := bufio.NewReader(conn)
	for time.Now().Before(end) {
		if _, err := conn.Write([]byte(head)); err != nil {
			return n, err
		}
		r, err := http.ReadResponse(from, nil)
		if err != nil {
			return n, err
		}
		if r.StatusCode != http.StatusOK {
			return n, fmt.Errorf("a request is answered %s", r.Status)
		}
		if _, err := from.Discard(int(r.ContentLength)); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
