package pacer

import (
	"fmt"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// contractLimiters is the contract's table (section 8), like the built-in policy: a caller contains
// no parser of policy files. A test compares the two.
var contractLimiters = []struct {
	name    string
	routes  []string
	windows []string
}{
	{"widget-init", []string{"POST /api/v1/widget/init"}, []string{"1000 per minute by ip+agent", "30000 per hour by ip"}},
	{"widget-session", []string{"POST /api/v1/widget/messages*", "/api/v1/widget/events*", "/api/v1/widget/conversations*"}, []string{"300 per minute by session or ip"}},
	{"widget-leads", []string{"POST /api/v1/widget/leads"}, []string{"30 per minute by session or ip"}},
	{"wp-plugin", []string{"/v1/wp/*"}, []string{"60 per minute by token or ip"}},
	{"widget-typing", []string{"POST /api/v1/widget/typing"}, []string{"600 per minute by ip"}},
	{"widget-satisfaction", []string{"POST /api/v1/widget/satisfaction"}, []string{"60 per minute by ip"}},
	{"widget-coupon", []string{"POST /api/v1/widget/coupon/apply"}, []string{"120 per minute by ip"}},
	{"widget-other", []string{"/api/v1/widget/*"}, []string{"6000 per minute by ip"}},
}

// contract compiles the table, once.
var contract = sync.OnceValue(func() *weir.Routes {
	var p weir.Policy
	for _, row := range contractLimiters {
		l := weir.Limiter{Name: row.name}
		for _, s := range row.routes {
			l.Routes = append(l.Routes, must(weir.ParseRoute(s)))
		}
		for _, s := range row.windows {
			l.Windows = append(l.Windows, must(weir.ParseWindow(s)))
		}
		p.Limiters = append(p.Limiters, l)
	}
	return must(weir.NewRoutes(p))
})

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("the contract's table: %v", err)) // impossible: the table is above
	}
	return v
}

// declaredBy returns the limit and length of a window of the routes.
func declaredBy(w weir.Window) declared {
	return declared{w.Limit, int64(w.Per / time.Second), w.Requests}
}
