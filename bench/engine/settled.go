package main

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
)

// The contestants of the cases in which an answer tells what its request has cost: the same server,
// which reads that or does not.
const (
	unsettledName = "weir, the cost unread"
	settledName   = "weir, the cost settled"
)

// What the answers of these cases tell, in units.
const (
	toldByField = 2
	toldByBody  = 7
)

// The policies' costs: what is reserved, and where the answer tells the rest.
const (
	costByField = "{reserve: 5, from: header:X-Cost}"
	costByBody  = "{reserve: 4000, from: json:usage.total_tokens}"
)

// upstreamHead begins the answers of the upstream with small answers.
const upstreamHead = "HTTP/1.1 200 OK\r\nServer: upstream\r\nDate: Sun, 22 Nov 2026 00:00:00 GMT\r\n"

// smallAnswers are the answers of that upstream, by the name of the child that gives them.
var smallAnswers = map[string]string{
	"small": upstreamHead + "Content-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n",
	"costs": upstreamHead + fmt.Sprintf("X-Cost: %d\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n", toldByField),
	"json":  upstreamHead + "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(completion)) + "\r\n\r\n" + completion,
}

// completion is an answer of 4 KiB, as a model's API gives it: the usage is at its end.
var completion = func() string {
	const begin = `{"id":"chatcmpl-8123","object":"chat.completion","created":1795400000,"model":"example-1","choices":[{"index":0,"message":{"role":"assistant","content":"`
	end := fmt.Sprintf(`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":%d}}`, toldByBody)
	const text = `A limit holds at any time.\nWhat is not used is given back, \"once\", into the same window. `
	room := 4096 - len(begin) - len(end)
	return begin + strings.Repeat(text, room/len(text)) + strings.Repeat("x", room%len(text)) + end
}()

// settledContestants are the two of a case in which answers tell a cost of told units.
func settledContestants(told int64) func(w *world) []contestant {
	return func(w *world) []contestant {
		var engine []string
		if w.engines {
			engine = []string{"--engine", "auto"}
		}
		return []contestant{
			{unsettledName, false, func(ctx context.Context, w *world, s setup) (*server, error) {
				s.cost = ""
				return startProven(ctx, w, s, 1, engine)
			}},
			{settledName, false, func(ctx context.Context, w *world, s setup) (*server, error) {
				return startProven(ctx, w, s, told, engine)
			}},
		}
	}
}

// startProven starts Weir, and checks that a request costs what it should: otherwise the case would
// measure something else.
func startProven(ctx context.Context, w *world, s setup, cost int64, engine []string) (*server, error) {
	one, err := startWeir(ctx, w, s, engine...)
	if err != nil {
		return nil, err
	}
	var before, after int64
	if before, err = spent(one.address, s.limit); err == nil {
		after, err = spent(one.address, s.limit)
	}
	if paid := after - before; err == nil && paid != cost {
		err = fmt.Errorf("a request costs %d units, want %d", paid, cost)
	}
	if err != nil {
		one.stop()
		return nil, err
	}
	return one, nil
}

var remaining = regexp.MustCompile(`(?i)\r\nX-RateLimit-Remaining: (\d+)\r\n`)

// spent sends a request, and returns what is spent of the limit by then.
func spent(address string, limit int64) (int64, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := c.Write([]byte(request(smallPath, ""))); err != nil {
		return 0, err
	}
	m, err := readHead(c, make([]byte, 16<<10))
	if err != nil {
		return 0, err
	}
	found := remaining.FindSubmatch(m.head)
	if m.status() != 200 || found == nil {
		return 0, fmt.Errorf("a request is answered\n%s", m.head)
	}
	n, err := strconv.ParseInt(string(found[1]), 10, 64)
	return limit - n, err
}
