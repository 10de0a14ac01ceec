// Command echo limits a service of echo.
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v5"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8000", service())) }

func service() http.Handler {
	tenant := httplimit.KeyFunc("tenant", weir.Chosen, func(r *http.Request) (string, bool) {
		name := r.PathValue("tenant") // echo.WrapMiddleware has set it
		// it is as it was sent if RawPath is set; one tenant has one budget, however it is spelled
		if plain, err := url.PathUnescape(name); err == nil && r.URL.RawPath != "" {
			name = plain
		}
		return name, name != ""
	})
	byTenant := httplimit.Setup{Caller: identity.Options{Extra: []identity.Source{tenant}}}

	e := echo.New()
	e.GET("/hello", func(c *echo.Context) error { return c.String(http.StatusOK, "hello\n") }, limited(httplimit.Limit("10 per minute by ip")))
	e.GET("/tenants/:tenant", func(c *echo.Context) error {
		if c.Param("tenant") == "missing" {
			return echo.ErrNotFound
		}
		return c.String(http.StatusOK, fmt.Sprintf("hello, %s\n", c.Param("tenant")))
	}, limited(byTenant.Limit("3 per minute by tenant+ip")))
	return e
}
