// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"encoding/xml"
	"errors"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/accesslog"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
	"github.com/nebulaio/nebulaio/internal/s3api/xmldoc"
)

// settingLogging is the name of the access log's configuration in the settings of a bucket.
const settingLogging = "logging"

// loggingStatus is the document of a bucket's access log.
type loggingStatus struct {
	XMLName xml.Name        `xml:"BucketLoggingStatus"`
	Space   string          `xml:"xmlns,attr"`
	Enabled *loggingEnabled `xml:"LoggingEnabled"`
}

type loggingEnabled struct {
	TargetBucket string         `xml:"TargetBucket"`
	TargetPrefix string         `xml:"TargetPrefix"`
	Grants       *struct{}      `xml:"TargetGrants"`
	Format       *loggingFormat `xml:"TargetObjectKeyFormat"`
}

type loggingFormat struct {
	Simple      *struct{} `xml:"SimplePrefix"`
	Partitioned *struct {
		DateSource string `xml:"PartitionDateSource,omitempty"`
	} `xml:"PartitionedPrefix"`
}

func loggingConfiguration() configuration {
	return configuration{
		get: auth.GetBucketLoggingAction, put: auth.PutBucketLoggingAction,
		write: func(b *backend, ctx fiber.Ctx, bucket string, body []byte) error {
			return putLogging(b, ctx, bucket, body)
		},
		read: func(b *backend, ctx fiber.Ctx, bucket string) ([]byte, error) {
			bk, err := b.bucketOf(ctx.RequestCtx(), bucket)
			if err != nil {
				return nil, err
			}
			if doc, ok := bk.Settings[settingLogging]; ok {
				return doc, nil
			}
			return xml.Marshal(loggingStatus{Space: s3Space})
		},
		remove: func(*backend, fiber.Ctx, string) error { return methodNotAllowed() },
	}
}

// putLogging stores the configuration of a bucket's access log, or turns the access log off.
func putLogging(b *backend, ctx fiber.Ctx, bucket string, body []byte) error {
	doc, err := readLogging(body)
	if err != nil {
		return err
	}
	if b.flushLog != nil {
		// Lines of the old configuration belong to the old target.
		defer b.flushLog(bucket)
	}
	if doc.Enabled == nil {
		return b.put(ctx.RequestCtx(), bucket, settingLogging, nil)
	}
	source, err := b.bucketOf(ctx.RequestCtx(), bucket)
	if err != nil {
		return err
	}
	target, err := b.store.Bucket(patient(ctx.RequestCtx()), doc.Enabled.TargetBucket)
	switch {
	case errors.Is(err, object.ErrNoSuchBucket):
		return badLogTarget("The target bucket for logging does not exist.")
	case err != nil:
		return b.s3Error("PutBucketLogging", object.Ref{Bucket: bucket}, err)
	case target.OnUpstream() || object.IsDirectory(target.Name):
		return badLogTarget("The target bucket for logging must be an ordinary bucket of this server.")
	}
	to := doc.target(source, b.region)
	if err := b.mayDeliver(to, target, to.Key(time.Now())); err != nil {
		if target.Owner == source.Owner {
			return badLogTarget("The policy of the target bucket denies s3:PutObject to " + policy.LoggingService + ".")
		}
		return badLogTarget(
			"The owner for the bucket to be logged and the target bucket must be the same, or the policy of " +
				"the target bucket must allow s3:PutObject to " + policy.LoggingService + ".")
	}
	encoded, err := xml.Marshal(doc)
	if err != nil {
		return err
	}
	return b.put(ctx.RequestCtx(), bucket, settingLogging, encoded)
}

func badLogTarget(text string) error {
	return refusal(http.StatusBadRequest, "InvalidTargetBucketForLogging", text)
}

// readLogging parses the configuration of an access log.
func readLogging(body []byte) (*loggingStatus, error) {
	var doc loggingStatus
	if err := xmldoc.Check(body, "BucketLoggingStatus"); err != nil {
		return nil, malformedXML(err)
	}
	if err := xml.Unmarshal(body, &doc); err != nil {
		return nil, malformedXML(err)
	}
	doc.XMLName, doc.Space = xml.Name{}, s3Space
	e := doc.Enabled
	if e == nil {
		return &doc, nil
	}
	if e.TargetBucket == "" {
		return nil, malformedXML(errors.New("LoggingEnabled has no TargetBucket"))
	}
	if e.Grants != nil {
		return nil, notImplemented("TargetGrants", "grants for the objects of an access log; give the target bucket a policy")
	}
	if len(e.TargetPrefix) > 512 {
		return nil, invalid("The target prefix has more than 512 bytes.")
	}
	if f := e.Format; f != nil {
		if (f.Simple != nil) == (f.Partitioned != nil) {
			return nil,
				malformedXML(errors.New("TargetObjectKeyFormat has not exactly one of SimplePrefix and PartitionedPrefix"))
		}
		if p := f.Partitioned; p != nil && p.DateSource != "" && p.DateSource != "EventTime" &&
			p.DateSource != "DeliveryTime" {
			return nil, malformedXML(errors.New("PartitionDateSource is neither EventTime nor DeliveryTime"))
		}
	}
	return &doc, nil
}

// target returns where the lines of a source bucket are delivered. The configuration has the element LoggingEnabled.
func (l *loggingStatus) target(source *object.Bucket, region string) accesslog.Target {
	t := accesslog.Target{Source: source.Name, Owner: source.Owner, Region: region, Bucket: l.Enabled.TargetBucket,
		Prefix: l.Enabled.TargetPrefix}
	if f := l.Enabled.Format; f != nil && f.Partitioned != nil {
		t.Partitioned, t.EventTime = true, f.Partitioned.DateSource == "EventTime"
	}
	return t
}

// logTarget is the parsed configuration of a bucket's access log, as long as the settings of the bucket stay the same.
type logTarget struct {
	of     *object.Bucket
	target accesslog.Target
}

// loggingOf returns where the requests of a bucket are logged. It is quick for a bucket without an access log.
func loggingOf(s *Server, e *Event) (accesslog.Target, bool) {
	if s.opts.AccessLog == nil || e.Bucket == "" {
		return accesslog.Target{}, false
	}
	bk, err := s.opts.Store.Bucket(background, e.Bucket)
	if err != nil {
		return accesslog.Target{}, false
	}
	raw, ok := bk.Settings[settingLogging]
	if !ok {
		return accesslog.Target{}, false
	}
	if known, ok := s.backend.logs.Load(bk.Name); ok && known.(*logTarget).of == bk {
		return known.(*logTarget).target, true
	}
	doc, err := readLogging(raw)
	if err != nil || doc.Enabled == nil {
		return accesslog.Target{}, false // cannot happen: putLogging wrote it
	}
	t := doc.target(bk, s.opts.Region)
	s.backend.logs.Store(bk.Name, &logTarget{of: bk, target: t})
	return t, true
}

// removalsKey is the user value that holds the removals of a list of deletions, if the bucket has an access log.
const removalsKey = "nebulaio-removals"

// logAccess writes the line of a finished request to the access log of its bucket. As in S3, a list of deletions has
// another line for each key that was deleted.
func logAccess(s *Server, t accesslog.Target, e *Event, deleted []removal) {
	err := s.opts.AccessLog(t, accessLine(t.Owner, e))
	for i := 0; i < len(deleted) && err == nil; i++ {
		err = s.opts.AccessLog(t, removalLine(t.Owner, e, deleted[i]))
	}
	if err != nil {
		s.opts.Log.Error("a line of an access log could not be written", "bucket", t.Source, "error", err)
	}
}
