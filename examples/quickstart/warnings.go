package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// warnings is a slog.Handler that prints what the client survived, each warning
// as one plain line between those of the progress.
type warnings struct{ progress progress }

func (h warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (h warnings) Handle(_ context.Context, record slog.Record) error {
	line := "warning: " + strings.TrimPrefix(record.Message, "embedonce: ")
	var details, cause string
	record.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "wait": // only a retry has it
			line = fmt.Sprintf("retrying in %v", a.Value.Duration().Round(100*time.Millisecond))
		case "error":
			cause = ": " + a.Value.String()
		case "attempt":
		default:
			details += ", " + a.String()
		}
		return true
	})
	h.progress.note(line + details + cause)
	return nil
}

// The client adds its attributes to the records alone.
func (h warnings) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h warnings) WithGroup(string) slog.Handler      { return h }
