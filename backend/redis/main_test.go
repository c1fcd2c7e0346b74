package redis

import (
	"context"
	"os"
	"testing"

	driver "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// quiet is a logger for the driver, which reports each connection that fails: here
// they do all the time.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	driver.SetLogger(quiet{})
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		stopServers()
		os.Exit(code)
	}))
}
