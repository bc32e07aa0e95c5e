// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Bounds of the gossip log, so that a stranger cannot fill the log with bad packets.
const (
	linesPerPeriod = 20
	logPeriod      = 10 * time.Second
	maxLine        = 512
)

// logLines turns memberlist's log lines, such as "[WARN] memberlist: text", into records of a slog.Logger. memberlist
// logs addresses, names and error texts, but no keys and no content.
type logLines struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	start   time.Time
	count   int
	dropped int
}

func newLogLines(log *slog.Logger) io.Writer { return &logLines{log: log, now: time.Now} }

// Write implements io.Writer. Write never fails.
func (l *logLines) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p[:min(len(p), maxLine)]))
	level := slog.LevelInfo
	for prefix, of := range map[string]slog.Level{
		"[DEBUG] ": slog.LevelDebug, "[INFO] ": slog.LevelDebug, "[WARN] ": slog.LevelWarn,
		// memberlist logs a failed probe of another node and a bad packet as errors. This node has not failed.
		"[ERR] ": slog.LevelWarn, "[ERROR] ": slog.LevelWarn,
	} {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			text, level = rest, of
			break
		}
	}
	if !l.log.Enabled(context.Background(), level) {
		return len(p), nil
	}
	dropped, ok := l.take()
	if dropped > 0 {
		l.log.Warn("gossip log lines were dropped", "lines", dropped)
	}
	if ok {
		l.log.Log(context.Background(), level, "gossip", "text", strings.TrimPrefix(text, "memberlist: "))
	}
	return len(p), nil
}

// take reports whether another line may be logged, and at the start of a period how many lines were dropped before it.
func (l *logLines) take() (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now.Sub(l.start) >= logPeriod {
		dropped = l.dropped
		l.start, l.count, l.dropped = now, 0, 0
	}
	if l.count >= linesPerPeriod {
		l.dropped++
		return dropped, false
	}
	l.count++
	return dropped, true
}
