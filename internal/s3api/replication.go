// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/replication/rules"
)

// replicationJournal is the bucket setting that asks the journal for the changes of replicated keys.
const replicationJournal = object.SettingJournal + "replication"

// replicationConfiguration serves the replication rules of buckets.
func replicationConfiguration() configuration {
	return configuration{
		get: auth.GetReplicationConfigurationAction, put: auth.PutReplicationConfigurationAction,
		write: putReplication, read: getReplication,
		remove: func(b *backend, ctx fiber.Ctx, bucket string) error {
			return b.change(ctx.RequestCtx(), bucket, func(bk *object.Bucket) error {
				delete(bk.Settings, rules.Setting)
				delete(bk.Settings, replicationJournal)
				return nil
			})
		},
	}
}

func putReplication(b *backend, ctx fiber.Ctx, bucket string, body []byte) error {
	c, err := rules.Parse(body, func(target string) bool { return slices.Contains(b.targets, target) })
	if err != nil {
		var f *rules.Fault
		if errors.As(err, &f) {
			return refusal(f.Status, f.Code, f.Reason)
		}
		return err
	}
	doc, err := xml.Marshal(c) // rules without ID have one now
	if err != nil {
		return err
	}
	stored, err := json.Marshal(rules.Stored{Document: string(doc), Since: time.Now().UTC().Truncate(time.Millisecond)})
	if err != nil {
		return err
	}
	journal, err := object.EncodeJournalRules(c.JournalRules(bucket))
	if err != nil {
		return err
	}
	return b.change(ctx.RequestCtx(), bucket, func(bk *object.Bucket) error {
		switch {
		case bk.OnUpstream():
			return refusal(http.StatusNotImplemented, "NotImplemented",
				"Another S3 server keeps the objects of this bucket: put the replication configuration there.")
		case bk.Versioning != object.VersioningEnabled:
			return refusal(http.StatusBadRequest, "InvalidRequest",
				"Versioning must be 'Enabled' on the bucket to apply a replication configuration.")
		}
		bk.Settings[rules.Setting], bk.Settings[replicationJournal] = stored, journal
		return nil
	})
}

func getReplication(b *backend, ctx fiber.Ctx, bucket string) ([]byte, error) {
	bk, err := b.bucketOf(ctx.RequestCtx(), bucket)
	if err != nil {
		return nil, err
	}
	raw, ok := bk.Settings[rules.Setting]
	if !ok {
		return nil, refusal(http.StatusNotFound, "ReplicationConfigurationNotFoundError",
			"The replication configuration was not found.")
	}
	var s rules.Stored
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	return []byte(s.Document), nil
}

// replicationRules are the replication rules of a bucket, as they were read once.
type replicationRules struct {
	of     *object.Bucket
	config *rules.Config // nil if the bucket has none
	since  time.Time
}

// tellReplication adds the header x-amz-replication-status to the reply, if the version is replicated or a replica.
func tellReplication(ctx context.Context, b *backend, bk *object.Bucket, info *object.Info) {
	_, replicated := bk.Settings[rules.Setting]
	if !replicated && info.Attributes[rules.AttrStatus] == "" {
		return
	}
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return
	}
	known, ok := b.replications.Load(bk.Name)
	if !ok || known.(*replicationRules).of != bk {
		c, since, err := rules.Read(bk)
		if err != nil {
			b.log.Warn("the replication rules of a bucket cannot be read", "bucket", bk.Name, "error", err,
				"fix", "put the replication configuration again")
		}
		known = &replicationRules{of: bk, config: c, since: since}
		b.replications.Store(bk.Name, known)
	}
	k := known.(*replicationRules)
	if status := k.config.Status(k.since, info); status != "" {
		rctx.Response.Header.Set("x-amz-replication-status", status)
	}
}

// replicated returns the context of a deletion. If the request adds a copy of a delete marker by replication, the
// journal says so, because a delete marker has no attributes. Otherwise two buckets that replicate to each other would
// send it back and forth.
func replicated(ctx context.Context, origin *object.Origin) context.Context {
	if !isReplica(ctx, origin) {
		return patient(ctx)
	}
	return object.WithRequester(patient(ctx), object.Requester{Principal: rules.Principal})
}

// isReplica reports whether a request is made by the replication of another server.
func isReplica(ctx context.Context, origin *object.Origin) bool {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	return ok && origin != nil && string(rctx.Request.Header.Peek("X-Amz-Replication-Status")) == rules.Replica
}

// markReplica records that a copy with an origin is a replica, if the request says so.
func markReplica(ctx context.Context, attrs map[string]string, origin *object.Origin) {
	if isReplica(ctx, origin) {
		attrs[rules.AttrStatus] = rules.Replica
	}
}
