// SPDX-License-Identifier: Apache-2.0

package node

import (
	"io"
	"log/slog"
)

// newLog makes the server's log. The format "auto" means text on a terminal and JSON otherwise.
func newLog(w io.Writer, level, format string, terminal bool) *slog.Logger {
	o := &slog.HandlerOptions{}
	switch level {
	case "debug":
		o.Level = slog.LevelDebug
	case "warn":
		o.Level = slog.LevelWarn
	case "error":
		o.Level = slog.LevelError
	default:
		o.Level = slog.LevelInfo
	}
	if format == "text" || format == "auto" && terminal {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// component returns a log that adds the name of a part of the server to each line.
func component(l *slog.Logger, name string) *slog.Logger { return l.With("component", name) }
