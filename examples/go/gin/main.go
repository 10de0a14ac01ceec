// Command gin limits a service of gin.
package main

import (
	"log"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8000", service())) }

func service() http.Handler {
	gin.SetMode(gin.ReleaseMode)
	tenant := httplimit.KeyFunc("tenant", weir.Chosen, func(r *http.Request) (string, bool) {
		name := r.PathValue("tenant") // see limited
		return name, name != ""
	})
	byTenant := httplimit.Setup{Caller: identity.Options{Extra: []identity.Source{tenant}}}

	r := gin.New()
	r.GET("/hello", limited(httplimit.Limit("10 per minute by ip")), func(c *gin.Context) { c.String(http.StatusOK, "hello\n") })
	r.GET("/tenants/:tenant", limited(byTenant.Limit("3 per minute by tenant+ip")), func(c *gin.Context) {
		if c.Param("tenant") == "missing" {
			c.Status(http.StatusNotFound) // without a body
			return
		}
		c.String(http.StatusOK, "hello, %s\n", c.Param("tenant"))
	})
	return r
}
