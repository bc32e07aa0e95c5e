// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"io/fs"
	"log/slog"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api"
)

// events are the functions that a store calls to report events. Each function may be nil.
type events struct {
	damage     func(object.Damage)
	failed     func(error)
	background func(error)
	exposed    func(path string, was fs.FileMode, err error)
	dropped    func(consumer string, n int64)
}

// events returns functions that turn the store's events into log lines and metrics.
func (s *server) events() events {
	log := component(s.log, "store")
	return events{
		damage: func(d object.Damage) {
			s.metrics.damaged(d)
			if d.What == object.DamageDeclared {
				log.Error("content differs from the checksums that a client of the door declared: the checksums were wrong from "+
					"the start, or the content was damaged later",
					"bucket", d.Bucket, "key", d.Key, "version", d.Version, "file", d.File, "offset", d.Off, "length", d.N, "what",
					d.What)
				return
			}
			log.Error("damage", "bucket", d.Bucket, "key", d.Key, "version", d.Version, "file", d.File, "offset", d.Off,
				"length", d.N, "what", d.What)
		},
		failed: func(err error) {
			s.broken.Store(&err)
			s.metrics.failed.Set(1)
			log.Error("the store takes no more changes", "error", err, "fix", "look at the disk, then restart the server")
		},
		background: func(err error) { log.Warn("background work of the store failed", "error", err) },
		dropped: func(consumer string, n int64) {
			log.Error("changes were dropped, because too many waited", "queue", consumer, "changes", n, "fix",
				"mend the target, or raise events.queue_limit")
		},
		exposed: func(path string, was fs.FileMode, err error) {
			if err != nil {
				log.Warn("other users can reach this part of the store", "path", path, "mode", was.String(), "error", err)
				return
			}
			log.Warn("closed a part of the store that other users could reach", "path", path, "mode", was.String())
		},
	}
}

// observe returns the function that counts every S3 request and writes the access log.
func (s *server) observe() func(s3api.Event) {
	log := component(s.log, "access")
	all := s.Config.AccessLog
	return func(e s3api.Event) {
		s.served.Add(1)
		s.metrics.observe(e.Operation, e.Status, e.In, e.Out, e.Duration)
		s.web.observeRequest(&e)
		level := slog.LevelDebug
		switch {
		case e.Status >= 500 && e.Status != 501 && e.Status != 503:
			level = slog.LevelError
		case all:
			level = slog.LevelInfo
		}
		if !log.Enabled(context.Background(), level) {
			return
		}
		attrs := []slog.Attr{
			slog.String("request", e.RequestID), slog.String("operation", e.Operation), slog.String("method", e.Method),
			slog.String("bucket", e.Bucket), slog.String("key", e.Key), slog.Int("status", e.Status),
			slog.Int64("in", e.In), slog.Int64("out", e.Out), slog.Float64("ms", float64(e.Duration.Microseconds())/1e3),
			slog.String("remote", e.Remote), slog.String("account", e.Account),
		}
		if e.Served != "" {
			attrs = append(attrs, slog.String("cache", e.Served))
		}
		if e.Code != "" {
			attrs = append(attrs, slog.String("code", e.Code))
		}
		if e.Err != nil {
			attrs = append(attrs, slog.String("error", e.Err.Error()))
		}
		log.LogAttrs(context.Background(), level, "request", attrs...)
	}
}

// connections returns the number of open S3 connections, or 0 before the front end has started.
func (s *server) connections() float64 {
	if f := s.front.Load(); f != nil {
		return float64(f.Connections())
	}
	return 0
}

// inFlight returns the number of S3 requests in progress.
func (s *server) inFlight() float64 {
	if f := s.front.Load(); f != nil {
		return float64(f.InFlight())
	}
	return 0
}
