package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWarningsArePlainLines(t *testing.T) {
	var out strings.Builder
	logger := slog.New(warnings{newProgress(&out, 1)})
	logger.Warn("embedonce: request failed, retrying", "attempt", 1, "wait", 1234*time.Millisecond, "error", "status 503")
	logger.Warn("embedonce: cache can't be written", "error", "disk full")
	logger.Warn("embedonce: texts over the limit", "texts", 3, "limit", 10)
	logger.Info("no warning")
	require.Equal(t, `retrying in 1.2s: status 503
warning: cache can't be written: disk full
warning: texts over the limit, texts=3, limit=10
`, out.String())
}
