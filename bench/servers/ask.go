package servers

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Ask has callers send one GET after another over HTTP/1.1, each on a connection of its own, for
// that long. It returns how many were answered; all must be answered 200.
func Ask(at string, callers int, length time.Duration) (n int, failed error) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	end := time.Now().Add(length)
	for range callers {
		asking.Go(func() {
			own, err := askUntil(at, end)
			mu.Lock()
			defer mu.Unlock()
			n, failed = n+own, errors.Join(failed, err)
		})
	}
	asking.Wait()
	return n, failed
}

func askUntil(at string, end time.Time) (n int, err error) {
	conn, err := net.Dial("tcp", at)
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
