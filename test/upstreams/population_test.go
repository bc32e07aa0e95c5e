// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/tags"

	"github.com/nebulaio/nebulaio/test/upstreams"
)

// population is a server full of objects of every kind that a migration has to keep.
type population struct {
	t      *testing.T
	c      *minio.Core
	random *rand.Rand
}

// Buckets of a population: without versions, with versions, with suspended versions, and with object lock.
const (
	plainBucket     = "plain-bucket"
	versionedBucket = "versioned.bucket"
	suspendedBucket = "suspended-bucket"
	lockedBucket    = "locked-bucket"
)

func (p *population) must(err error, what string) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

const migratedPolicy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["*"]},` +
	`"Action":["s3:GetObject"],"Resource":["arn:aws:s3:::versioned.bucket/public/*"]}]}`

// make fills the server with about so many objects.
func (p *population) make(objects int) {
	p.t.Helper()
	ctx := p.t.Context()
	for _, name := range []string{plainBucket, versionedBucket, suspendedBucket, lockedBucket} {
		p.must(p.c.MakeBucket(ctx, name, minio.MakeBucketOptions{Region: upstreams.Region,
			ObjectLocking: name == lockedBucket}), "make bucket")
	}
	// Objects from before versioning have null versions.
	for i := range 5 {
		p.put(suspendedBucket, fmt.Sprintf("mixed/%d", i), 10)
		p.put(versionedBucket, fmt.Sprintf("old/%d", i), 10)
	}
	p.must(p.c.EnableVersioning(ctx, versionedBucket), "enable versioning")
	p.must(p.c.EnableVersioning(ctx, suspendedBucket), "enable versioning")
	for i := range 5 {
		p.put(suspendedBucket, fmt.Sprintf("mixed/%d", i), 20+i)
		p.put(versionedBucket, fmt.Sprintf("old/%d", i), 20+i)
	}
	p.must(p.c.SuspendVersioning(ctx, suspendedBucket), "suspend versioning")
	for i := range 3 {
		p.put(suspendedBucket, fmt.Sprintf("mixed/%d", i), 30+i)
	}
	p.remove(suspendedBucket, "mixed/4")
	p.must(p.c.SetBucketPolicy(ctx, versionedBucket, migratedPolicy), "set policy")
	bucketTags, err := tags.NewTags(map[string]string{"team": "storage / more", "cost": "42"}, false)
	p.must(err, "tags")
	p.must(p.c.SetBucketTagging(ctx, versionedBucket, bucketTags), "set tags of a bucket")
	mode, days, unit := minio.Governance, uint(1), minio.Days
	p.must(p.c.SetBucketObjectLockConfig(ctx, lockedBucket, &mode, &days, &unit), "set lock")
	p.locks()
	p.parts()
	p.odd()
	p.fill(objects)
}

// locks writes versions with and without retention and legal hold.
func (p *population) locks() {
	until := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	for i, mode := range []minio.RetentionMode{minio.Governance, minio.Compliance, ""} {
		o := minio.PutObjectOptions{DisableMultipart: true, SendContentMd5: true}
		if mode != "" {
			o.Mode, o.RetainUntilDate = mode, until
		}
		if i != 1 {
			o.LegalHold = minio.LegalHoldEnabled
		}
		for n := range 2 {
			data := content(uint64(900+i), 100+n)
			_, err := p.c.Client.PutObject(p.t.Context(), lockedBucket, fmt.Sprintf("held-%d", i), bytes.NewReader(data),
				int64(len(data)), o)
			p.must(err, "put a locked object")
		}
	}
}

// parts writes multipart objects, whose ETags are made of their parts.
func (p *population) parts() {
	for i, bucket := range []string{plainBucket, versionedBucket} {
		data := content(uint64(70+i), 11<<20)
		_, err := p.c.Client.PutObject(p.t.Context(), bucket, "multipart/big", bytes.NewReader(data), int64(len(data)),
			minio.PutObjectOptions{PartSize: 5 << 20, UserMetadata: map[string]string{"parts": "three"},
				UserTags: map[string]string{"big": "yes"}})
		p.must(err, "put in parts")
	}
}

// odd writes keys with characters that must be escaped somewhere.
func (p *population) odd() {
	for _, key := range []string{"a b+c&d=é%41", "日本/語.txt", "quote'\"<x>", "deep/er/and/deeper", "dots.../x", "tilde~",
		"z"} {
		p.put(versionedBucket, "odd/"+key, 33)
		p.put(plainBucket, "odd/"+key, 34)
	}
}

// fill writes objects with one to four versions and delete markers.
func (p *population) fill(objects int) {
	p.t.Helper()
	var group sync.WaitGroup
	work := make(chan int)
	for range 8 {
		group.Go(func() {
			for i := range work {
				r := rand.New(rand.NewPCG(7, uint64(i)))
				if i%4 == 0 {
					p.put(plainBucket, fmt.Sprintf("many/%05d", i), r.IntN(3000))
					continue
				}
				key := fmt.Sprintf("many/%05d", i)
				for n := range 1 + r.IntN(3) {
					p.put(versionedBucket, key, 1+n+r.IntN(3000))
				}
				if i%7 == 0 {
					p.remove(versionedBucket, key)
				}
				if i%14 == 0 {
					p.put(versionedBucket, key, 77)
				}
			}
		})
	}
	for i := range objects {
		work <- i
	}
	close(work)
	group.Wait()
}

// change writes, replaces and deletes while a migration runs.
func (p *population) change(n int, name string) {
	for i := range n {
		p.put(versionedBucket, fmt.Sprintf("many/%05d", p.random.IntN(200)), 200+i)
		p.put(plainBucket, fmt.Sprintf("many/%05d", 4*p.random.IntN(50)), 300+i)
		p.put(versionedBucket, name+fmt.Sprint(i), 50)
	}
	p.remove(versionedBucket, name+"0")
}

func (p *population) put(bucket, key string, size int) {
	p.t.Helper()
	seed := sha256.Sum256([]byte(bucket + key + fmt.Sprint(size)))
	o := minio.PutObjectOptions{DisableMultipart: true, SendContentMd5: true,
		ContentType: []string{"text/plain", "application/x-thing", "image/png"}[seed[0]%3]}
	switch seed[1] % 4 {
	case 0:
		o.UserMetadata = map[string]string{"Color": "blue", "note": "a, b; c"}
		o.ContentEncoding, o.ContentLanguage, o.CacheControl = "gzip", "de", "max-age=60"
	case 1:
		o.UserTags = map[string]string{"k": "v w", "é": "=/+"}
		o.ContentDisposition = `attachment; filename="x y.bin"`
	case 2:
		o.Expires = time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
	}
	data := content(uint64(seed[2])<<8|uint64(seed[3]), size)
	if _, err := p.c.Client.PutObject(p.t.Context(), bucket, key, bytes.NewReader(data), int64(size), o); err != nil {
		p.t.Errorf("put %s/%s: %v", bucket, key, err)
	}
}

func (p *population) remove(bucket, key string) {
	p.t.Helper()
	if err := p.c.Client.RemoveObject(p.t.Context(), bucket, key, minio.RemoveObjectOptions{}); err != nil {
		p.t.Errorf("delete %s/%s: %v", bucket, key, err)
	}
}

// one is a version or delete marker, without its identifier.
type one struct {
	bucket, key, etag string
	size, modified    int64
	latest, marker    bool
	null              bool
}

// snapshot lists all versions of a server. Identifiers are kept beside them.
func (p *population) snapshot(c *minio.Core) (out []listed) {
	p.t.Helper()
	all, err := c.ListBuckets(p.t.Context())
	p.must(err, "list buckets")
	options := minio.ListObjectsOptions{WithVersions: true, Recursive: true}
	options.Set("X-Nebulaio-Exact", "true") // NebulaIO lists whole seconds otherwise, as S3 does
	for _, b := range all {
		for o := range c.Client.ListObjects(p.t.Context(), b.Name, options) {
			p.must(o.Err, "list "+b.Name)
			e := one{bucket: b.Name, key: o.Key, etag: strings.Trim(o.ETag, `"`), size: o.Size,
				modified: o.LastModified.UnixMilli(), latest: o.IsLatest, marker: o.IsDeleteMarker,
				null: o.VersionID == "null" || o.VersionID == ""}
			if e.marker {
				e.etag, e.size = "", 0
			}
			out = append(out, listed{e, o.VersionID})
		}
	}
	// One of both servers lists delete markers apart from versions.
	slices.SortStableFunc(out, func(a, b listed) int {
		if c := strings.Compare(a.bucket+"\x00"+a.key, b.bucket+"\x00"+b.key); c != 0 {
			return c
		}
		if a.latest != b.latest {
			if a.latest {
				return -1
			}
			return 1
		}
		if a.modified != b.modified {
			return int(b.modified - a.modified)
		}
		return strings.Compare(a.etag, b.etag)
	})
	return out
}

type listed struct {
	one
	id string
}

func (p *population) equal(a, b []listed, what string) {
	p.t.Helper()
	if !slices.Equal(a, b) {
		p.t.Errorf("%s differ: %d and %d versions", what, len(a), len(b))
	}
}

// compare compares the listing, the content and the metadata of every version with the other server.
func (p *population) compare(c *minio.Core, want []listed) {
	p.t.Helper()
	got := p.snapshot(c)
	if len(got) != len(want) {
		p.t.Errorf("the target has %d versions, the source %d", len(got), len(want))
	}
	var group sync.WaitGroup
	gate := make(chan struct{}, 8)
	for i := range min(len(want), len(got)) {
		if want[i].one != got[i].one {
			p.t.Errorf("version %d: the source has %+v, the target %+v", i, want[i].one, got[i].one)
			if i > 20 {
				break
			}
			continue
		}
		if want[i].marker {
			continue
		}
		gate <- struct{}{}
		group.Go(func() {
			defer func() { <-gate }()
			a, b := p.whole(p.c, want[i]), p.whole(c, got[i])
			if !maps.Equal(a, b) {
				p.t.Errorf("%s/%s, version %s:\nsource %v\ntarget %v", want[i].bucket, want[i].key, want[i].id, a, b)
			}
		})
	}
	group.Wait()
	p.compareBuckets(c)
}

// whole returns everything about a version: headers, metadata, tags, locks and a digest of its content.
func (p *population) whole(c *minio.Core, v listed) map[string]string {
	p.t.Helper()
	out := map[string]string{}
	o := minio.GetObjectOptions{VersionID: v.id}
	body, info, h, err := c.GetObject(p.t.Context(), v.bucket, v.key, o)
	if err != nil {
		p.t.Errorf("get %s/%s, version %s: %v", v.bucket, v.key, v.id, err)
		return out
	}
	data, err := readAll(body)
	if err != nil {
		p.t.Errorf("read %s/%s: %v", v.bucket, v.key, err)
	}
	sum := sha256.Sum256(data)
	out["content"] = hex.EncodeToString(sum[:])
	for name, values := range h {
		switch lower := strings.ToLower(name); {
		case strings.HasPrefix(lower, "x-amz-meta-"), strings.HasPrefix(lower, "x-amz-object-lock-"), lower == "etag",
			lower == "content-type", lower == "content-encoding", lower == "content-language", lower == "cache-control",
			lower == "content-disposition", lower == "expires", lower == "last-modified", lower == "x-amz-tagging-count":
			out[lower] = strings.Join(values, ",")
		}
	}
	if at, err := time.Parse(time.RFC3339, out["x-amz-object-lock-retain-until-date"]); err == nil {
		out["x-amz-object-lock-retain-until-date"] = at.UTC().String() // servers write fractions of a second or not
	}
	if info.UserTagCount > 0 {
		all, err := c.GetObjectTagging(p.t.Context(), v.bucket, v.key, minio.GetObjectTaggingOptions{VersionID: v.id})
		if err != nil {
			p.t.Errorf("tags of %s/%s: %v", v.bucket, v.key, err)
			return out
		}
		for name, value := range all.ToMap() {
			out["tag "+name] = value
		}
	}
	return out
}

// compareBuckets compares the settings of the buckets.
func (p *population) compareBuckets(c *minio.Core) {
	p.t.Helper()
	ctx := p.t.Context()
	for _, name := range []string{plainBucket, versionedBucket, suspendedBucket, lockedBucket} {
		a, err := p.c.GetBucketVersioning(ctx, name)
		p.must(err, "versioning")
		b, err := c.GetBucketVersioning(ctx, name)
		p.must(err, "versioning")
		if a.Status != b.Status {
			p.t.Errorf("%s: versioning %q, expected %q", name, b.Status, a.Status)
		}
	}
	policy, err := c.GetBucketPolicy(ctx, versionedBucket)
	p.must(err, "policy")
	if !strings.Contains(policy, "arn:aws:s3:::versioned.bucket/public/*") {
		p.t.Errorf("the policy is %s", policy)
	}
	all, err := c.GetBucketTagging(ctx, versionedBucket)
	p.must(err, "tags of a bucket")
	if !maps.Equal(all.ToMap(), map[string]string{"team": "storage / more", "cost": "42"}) {
		p.t.Errorf("the tags of a bucket are %v", all.ToMap())
	}
	_, mode, days, unit, err := c.GetObjectLockConfig(ctx, lockedBucket)
	p.must(err, "lock of a bucket")
	if mode == nil || *mode != minio.Governance || *days != 1 || *unit != minio.Days {
		p.t.Errorf("the lock of a bucket is %v %v %v", mode, days, unit)
	}
}
