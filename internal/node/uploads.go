// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/nebulaio/nebulaio/internal/store/disk"
)

// The server checks multipart uploads at intervals of a tenth of uploads.expire, within these bounds. The first
// check comes soon after the start, so that a server that restarts often frees space too.
const (
	expireSoonest = time.Second
	expireLatest  = time.Hour
	expireFirst   = time.Minute
)

// expireRegularly aborts expired multipart uploads at intervals, until ctx ends.
func (s *server) expireRegularly(ctx context.Context, st store) {
	life := s.Config.Uploads.Expire
	if life <= 0 {
		return
	}
	interval := min(max(life/10, expireSoonest), expireLatest)
	every(ctx, min(interval, expireFirst), interval, func() { s.expireUploads(ctx, st, time.Now().Add(-life)) })
}

// expireUploads aborts the multipart uploads without a new part since before, and logs and counts each of them.
func (s *server) expireUploads(ctx context.Context, st store, before time.Time) {
	log := component(s.log, "uploads")
	err := st.expireUploads(ctx, before, func(e disk.Expired) {
		s.metrics.expired.Inc()
		s.metrics.expiredBytes.Add(float64(e.Bytes))
		log.Info("aborted a multipart upload that nobody completed", "bucket", e.Bucket, "key", e.Key, "upload", e.ID,
			"parts", e.Parts, "bytes", e.Bytes, "began", e.Started.UTC().Format(time.RFC3339), "last",
			e.Last.UTC().Format(time.RFC3339))
	})
	if err != nil && ctx.Err() == nil {
		log.Warn("checking some multipart uploads failed", "error", err,
			"fix", "the server tries again; if this warning comes again, run nebulaio store check")
	}
}
