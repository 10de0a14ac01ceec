package verify

import (
	"testing"
	"time"
)

// foundWorlds are worlds in which a correct server was once reported as broken, each for another
// reason.
var foundWorlds = []struct {
	name string
	seed uint64
	world
}{
	{"a store charges an overrun after the next answer", 916, world{
		policy: `limiters:
  - name: things
    routes: [GET /things*]
    chosen: yes
    windows: ["10 per 7 seconds by header:X-Team"]
    cost: {reserve: 1, from: "header:X-Cost"}
    count: {status: [401, 403]}
`,
		latency: 40 * time.Millisecond, losses: 23, busy: true, quick: true, workers: 10,
		settles: settling{on: true, method: "GET", lag: 60 * time.Millisecond, statuses: []int{401}, costs: []string{"2", "", "-1", "x"}},
	}},
	{"a window of requests and one of units with the same limit", 1180, world{
		policy: `limiters:
  - name: things
    routes: [POST /things*]
    chosen: yes
    in_flight: 4 by agent
    windows: ["3 requests per 30 seconds by header:X-Team", "3 per 30 seconds by header:X-Team"]
    cost: 3
`,
		latency: 40 * time.Millisecond, workers: 1,
		settles: settling{on: true, method: "POST", statuses: []int{200}, costs: []string{"2", "", "-1", "x"}},
	}},
	{"held requests whose answers come in another order", 3981, world{
		policy: `limiters:
  - name: things
    routes: [POST /things*]
    chosen: yes
    in_flight: 6 by ip+header:X-Team
    windows: ["37 requests per 7 seconds by header:X-Team", "54 per 7 seconds by header:X-Team"]
    cost: {reserve: 4, from: "header:X-Cost"}
`,
		busy: true, quick: true, workers: 4,
		settles: settling{on: true, method: "POST", lag: 2 * time.Millisecond, early: true, statuses: []int{401}, costs: []string{"1", "2", "9"}},
	}},
	{"a request without an answer during the last look", 5323, world{
		policy: `limiters:
  - name: things
    routes: [/things*]
    chosen: yes
    windows: ["18 per 7 seconds by ip+header:X-Team"]
    cost: {reserve: 5, from: "header:X-Cost"}
`,
		losses: 23, busy: true, real: true, workers: 10,
		settles: settling{on: true, lag: 2 * time.Millisecond, statuses: []int{401, 200}, costs: []string{"3"}},
	}},
	{"the answer to a held request keeps back that it was refused", 11993, world{
		policy: `limiters:
  - name: things
    routes: [POST /things*]
    in_flight: 5 by ip
`,
		busy: true, real: true, workers: 7,
		settles: settling{on: true, method: "POST", lag: 60 * time.Millisecond, statuses: []int{200, 404}, costs: []string{"0"}},
	}},
	{"a value twice, answered with a status that is not counted", 15507, world{
		policy: `limiters:
  - name: things
    routes: [POST /things*]
    chosen: yes
    windows: ["1 per 2 seconds by header:X-Team"]
    cost: 1
    count: {status: [2xx]}
`,
		quick: true, real: true, workers: 6,
		settles: settling{on: true, method: "POST", statuses: []int{401, 200}, costs: []string{""}},
	}},
	{"the same request with a counted status and with another one", 16442, world{
		policy: `limiters:
  - name: things
    routes: [/things*]
    chosen: yes
    windows: ["14 requests per 7 seconds by header:X-Team", "26 per 7 seconds by header:X-Team"]
    count: {not: [5xx, 404]}
`,
		latency: 3 * time.Millisecond, losses: 23, workers: 1,
		settles: settling{on: true, lag: 2 * time.Millisecond, early: true, statuses: []int{200, 200, 404}, costs: []string{"2", "", "-1", "x"}},
	}},
	{"units of an uncounted request come back between two counted ones", 21811, world{
		policy: `limiters:
  - name: things
    routes: [POST /things*]
    chosen: yes
    in_flight: 5 by header:X-Team
    windows: ["39 per 30 seconds by header:X-Team"]
    cost: 4
    count: {not: [5xx, 404]}
`,
		latency: 3 * time.Millisecond, real: true, workers: 8,
		settles: settling{on: true, method: "POST", lag: 2 * time.Millisecond, statuses: []int{200, 200, 404}, costs: []string{"2", "", "-1", "x"}},
	}},
	{"refused by another window than at first", 29421, world{
		policy: `limiters:
  - name: things
    routes: [/things*]
    chosen: yes
    windows: ["3 requests per 30 seconds by header:X-Team", "21 per 30 seconds by header:X-Team"]
    cost: {reserve: 4, from: "header:X-Cost"}
    count: {not: [5xx, 404]}
`,
		quick: true, real: true, workers: 2,
		settles: settling{on: true, lag: 2 * time.Millisecond, statuses: []int{200, 404}, costs: []string{"1", "2", "9"}},
	}},
	{"attempts that outlast their window", 37105, world{
		policy: `limiters:
  - name: things
    routes: [POST /things*]
    chosen: yes
    windows: ["43 per 2 seconds by header:X-Team"]
    count: {status: [401, 403]}
`,
		latency: 40 * time.Millisecond, real: true, workers: 8,
		settles: settling{on: true, method: "POST", lag: 60 * time.Millisecond, statuses: []int{401}, costs: []string{"3"}},
	}},
	{"an overrun that another window's answer does not show", 63442, world{
		policy: `limiters:
  - name: things
    routes: [POST /things*]
    chosen: yes
    windows: ["19 requests per 7 seconds by header:X-Team", "31 per 7 seconds by header:X-Team"]
    cost: {reserve: 2, from: "header:X-Cost"}
    count: {not: [5xx, 404]}
`,
		latency: 3 * time.Millisecond, real: true, workers: 3,
		settles: settling{on: true, method: "POST", lag: 60 * time.Millisecond, early: true, statuses: []int{422}, costs: []string{"3"}},
	}},
	{"requests without an answer while costs are compared again", 117598, world{
		policy: `limiters:
  - name: things
    routes: [GET /things*]
    chosen: yes
    in_flight: 9 by ip+header:X-Team
    windows: ["55 requests per 7 seconds by header:X-Team", "25 per 7 seconds by header:X-Team"]
    cost: {reserve: 2, from: "header:X-Cost"}
    count: {not: [5xx, 404]}
`,
		losses: 23, real: true, workers: 11,
		settles: settling{on: true, method: "GET", lag: 60 * time.Millisecond, statuses: []int{401, 200}, costs: []string{"0"}},
	}},
	{"a backend that answers 503 while nothing is left", 14788, world{
		policy: `limiters:
  - name: things
    routes: [POST /things*]
    chosen: yes
    in_flight: 5 by ip
    windows: ["5 per 2 seconds by ip+header:X-Team"]
    cost: 1
`,
		workers: 12,
		settles: settling{on: true, method: "POST", statuses: []int{503, 401, 200}, costs: []string{"0"}},
	}},
	{"a backend that answers 503, which is not counted", 1743, world{
		policy: `limiters:
  - name: things
    routes: [GET /things*]
    windows: ["14 per 2 seconds by everyone"]
    cost: 4
    count: {status: [2xx]}
`,
		busy: true, workers: 1,
		settles: settling{on: true, method: "GET", lag: 2 * time.Millisecond, statuses: []int{503, 401, 200}, costs: []string{"3"}},
	}},
	{"a first request that is refused, and costs that follow", 81711, world{
		policy: `limiters:
  - name: things
    routes: [GET /things*]
    chosen: yes
    in_flight: 1 by ip
    windows: ["1 per 2 seconds by header:X-Team"]
    cost: {reserve: 1, from: "header:X-Cost"}
`,
		latency: 40 * time.Millisecond, losses: 23, quick: true, workers: 10,
		settles: settling{on: true, method: "GET", statuses: []int{200, 404}, costs: []string{"0"}},
	}},
	{"a request without an answer begins another caller's penalty", 14, world{
		policy: `limiters:
  - name: things
    routes: [/things]
    chosen: yes
    windows: [1 per 2 seconds by ip+agent]
    penalty: {after: 1 refusals per 1 seconds, refuse_for: 84 seconds}
`,
		losses: 5, workers: 1,
	}},
}

func TestACorrectServerIsNotReportedAsBrokenInTheWorldsThatDidSo(t *testing.T) {
	for _, c := range foundWorlds {
		t.Run(c.name, func(t *testing.T) {
			if problem := c.verify(t, c.seed); problem != "" {
				t.Errorf("%s\n%+v\n%s", c.policy, c.settles, problem)
			}
		})
	}
}
