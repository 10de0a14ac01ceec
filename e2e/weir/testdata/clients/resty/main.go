package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/go-resty/resty/v2"
)

func main() {
	// SNIPPET
	for n := 1; n <= 75; n++ {
		r, err := client.R().SetBody(map[string]int{"n": n}).Post(os.Getenv("TARGET"))
		fmt.Println(n, r.StatusCode(), err)
	}
}
