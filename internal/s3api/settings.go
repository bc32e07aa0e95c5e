// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Names of the documents in the settings of a bucket. Package policy has the names of the access rules.
const (
	settingCORS    = "cors"
	settingTags    = "tagging"
	settingLock    = "lock"
	settingWebsite = "website"
)

// change changes a bucket's settings.
func (b *backend) change(ctx context.Context, bucket string, change func(*object.Bucket) error) error {
	bucket = strings.Clone(bucket)
	err := b.store.UpdateBucket(patient(ctx), bucket, func(bk *object.Bucket) error {
		if bk.Settings == nil {
			bk.Settings = map[string][]byte{}
		}
		return change(bk)
	})
	return b.s3Error("UpdateBucket", object.Ref{Bucket: bucket}, err)
}

// put stores a document in the settings of a bucket. A nil document is removed.
func (b *backend) put(ctx context.Context, bucket, name string, doc []byte) error {
	doc = bytes.Clone(doc)
	return b.change(ctx, bucket, func(bk *object.Bucket) error {
		if doc == nil {
			delete(bk.Settings, name)
		} else {
			bk.Settings[name] = doc
		}
		return nil
	})
}

// get returns a document from the settings of a bucket, or the error missing if there is none. The document is
// shared and must not be changed.
func (b *backend) get(ctx context.Context, bucket, name string, missing s3err.ErrorCode) ([]byte, error) {
	bk, err := b.bucketOf(ctx, bucket)
	if err != nil {
		return nil, err
	}
	doc, ok := bk.Settings[name]
	if !ok {
		return nil, s3err.GetBucketErr(missing, strings.Clone(bucket))
	}
	return doc, nil
}

func (b *backend) PutBucketCors(ctx context.Context, bucket string, cors []byte) error {
	if err := checkDocument(ctx, "CORSConfiguration"); err != nil {
		return err
	}
	return b.put(ctx, bucket, settingCORS, cors)
}

func (b *backend) GetBucketCors(ctx context.Context, bucket string) ([]byte, error) {
	return b.get(ctx, bucket, settingCORS, s3err.ErrNoSuchCORSConfiguration)
}

func (b *backend) DeleteBucketCors(ctx context.Context, bucket string) error {
	return b.put(ctx, bucket, settingCORS, nil)
}

func (b *backend) PutBucketWebsite(ctx context.Context, bucket string, website []byte) error {
	return b.put(ctx, bucket, settingWebsite, website)
}

func (b *backend) GetBucketWebsite(ctx context.Context, bucket string) ([]byte, error) {
	return b.get(ctx, bucket, settingWebsite, s3err.ErrNoSuchWebsiteConfiguration)
}

func (b *backend) DeleteBucketWebsite(ctx context.Context, bucket string) error {
	return b.put(ctx, bucket, settingWebsite, nil)
}

func (b *backend) PutBucketTagging(ctx context.Context, bucket string, tags map[string]string) error {
	if tags == nil {
		return b.put(ctx, bucket, settingTags, nil)
	}
	if err := checkDocument(ctx, "Tagging"); err != nil {
		return err
	}
	doc, err := json.Marshal(tags)
	if err != nil {
		return err
	}
	return b.put(ctx, bucket, settingTags, doc)
}

func (b *backend) GetBucketTagging(ctx context.Context, bucket string) (map[string]string, error) {
	doc, err := b.get(ctx, bucket, settingTags, s3err.ErrBucketTaggingNotFound)
	if err != nil {
		return nil, err
	}
	sortTags(ctx)
	return decodeTags(string(doc))
}

func (b *backend) DeleteBucketTagging(ctx context.Context, bucket string) error {
	return b.put(ctx, bucket, settingTags, nil)
}

// lockOf returns the object lock settings of a bucket, or the zero value if it has none.
func lockOf(bk *object.Bucket) auth.BucketLockConfig {
	var lock auth.BucketLockConfig
	if doc, ok := bk.Settings[settingLock]; ok {
		_ = json.Unmarshal(doc, &lock) // only PutObjectLockConfiguration and CreateBucket write it
	}
	return lock
}

func lockEnabled(bk *object.Bucket) bool { return lockOf(bk).Enabled }

func (b *backend) PutObjectLockConfiguration(ctx context.Context, bucket string, config []byte) error {
	if err := checkDocument(ctx, "ObjectLockConfiguration"); err != nil {
		return err
	}
	var conf auth.BucketLockConfig
	if err := json.Unmarshal(config, &conf); err != nil {
		return s3err.GetAPIError(s3err.ErrMalformedXML)
	}
	if d := conf.DefaultRetention; d != nil && d.Days == nil && d.Years == nil {
		return s3err.GetAPIError(s3err.ErrMalformedXML) // a retention without a period protects nothing
	}
	// If the document had a time, versitygw would apply the default retention to all objects from that time on.
	// Here the retention of each version begins with the version.
	conf.CreatedAt = nil
	config, err := json.Marshal(conf)
	if err != nil {
		return err
	}
	bk, err := b.bucketOf(ctx, bucket)
	if err != nil {
		return err
	}
	if u := b.upstreamOf(bk); u != nil {
		return b.s3Error("PutObjectLockConfiguration", object.Ref{Bucket: bk.Name},
			u.SetLock(patient(ctx), upstreamLock(conf)))
	}
	return b.change(ctx, bucket, func(bk *object.Bucket) error {
		if bk.Versioning != object.VersioningEnabled {
			return s3err.GetAPIError(s3err.ErrObjectLockConfigurationNotAllowed)
		}
		bk.Settings[settingLock] = config
		return nil
	})
}

func (b *backend) GetObjectLockConfiguration(ctx context.Context, bucket string) ([]byte, error) {
	bk, err := b.bucketOf(ctx, bucket)
	if err != nil {
		return nil, err
	}
	// versitygw also calls this method before each change. There, an upstream enforces its locks by itself.
	if u := b.upstreamOf(bk); u != nil && asksFor(ctx, "object-lock") {
		return lockOnUpstream(ctx, b, bk.Name, u)
	}
	return b.get(ctx, bucket, settingLock, s3err.ErrObjectLockConfigurationNotFound)
}
