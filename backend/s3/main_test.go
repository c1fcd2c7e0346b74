package s3

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if arguments := os.Getenv(childVariable); arguments != "" {
		compactForEver(arguments)
	}
	code := m.Run()
	stopServers()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}
