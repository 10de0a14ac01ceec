// Command fiber limits a service of fiber, over fasthttp.
package main

import (
	"log"

	"github.com/gofiber/fiber/v3"

	"github.com/weirlimit/weir/identity"
)

func main() {
	app, err := service()
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(app.Listen("127.0.0.1:8000"))
}

func service() (*fiber.App, error) {
	// behind a proxy, also TrustedProxies; those of fiber.Config have no effect on the limiter
	who, err := identity.New(identity.Options{Extra: []identity.Source{parameter("tenant")}})
	if err != nil {
		return nil, err
	}
	byAddress, err := limit(who, "10 per minute by ip")
	if err != nil {
		return nil, err
	}
	byTenant, err := limit(who, "3 per minute by tenant+ip")
	if err != nil {
		return nil, err
	}
	app := fiber.New()
	app.Get("/hello", byAddress, func(c fiber.Ctx) error { return c.SendString("hello\n") })
	app.Get("/tenants/:tenant", byTenant, func(c fiber.Ctx) error {
		if c.Params("tenant") == "missing" {
			return fiber.ErrNotFound
		}
		return c.SendString("hello, " + c.Params("tenant") + "\n")
	})
	return app, nil
}
