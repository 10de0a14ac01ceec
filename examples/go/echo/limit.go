package main

import (
	"net/http"

	"github.com/labstack/echo/v5"
)

// limited makes an echo.MiddlewareFunc of net/http middleware such as httplimit.Limit's. The
// parameters of echo's route are path values of the request.
//
// Echo makes a response of a handler's error when all middleware has returned. That is too late
// for the limiter, which would have answered 200 by then, so the error handler is called here.
func limited(limit func(http.Handler) http.Handler) echo.MiddlewareFunc {
	wrap := echo.WrapMiddleware(limit)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		inner := wrap(func(c *echo.Context) error {
			if err := next(c); err != nil {
				c.Echo().HTTPErrorHandler(c, err)
			}
			return nil
		})
		return func(c *echo.Context) error {
			own, request := c.Response(), c.Request()
			defer func() {
				c.SetResponse(own)
				c.SetRequest(request)
			}()
			return inner(c)
		}
	}
}
