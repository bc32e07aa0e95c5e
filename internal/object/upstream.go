// SPDX-License-Identifier: Apache-2.0

package object

import "context"

// SettingUpstream is the name of the setting that marks an upstream bucket in Bucket.Settings. The value of the setting
// is the address of the bucket on the other server.
const SettingUpstream = "nebulaio-upstream"

// OnUpstream reports whether another S3 server keeps the objects of the bucket (an upstream bucket).
func (b *Bucket) OnUpstream() bool {
	_, ok := b.Settings[SettingUpstream]
	return ok
}

// Foreign is a Store with upstream buckets.
type Foreign interface {
	// Upstream returns the server that keeps the objects of an upstream bucket. Upstream returns nil if the store keeps
	// the objects itself.
	Upstream(bucket string) Upstream
}

// Upstream is the S3 server that keeps the objects of an upstream bucket. The versioning state and the object lock of
// an upstream bucket are settings of that server, and that server enforces them. Each method asks the server, and fails
// if the server refuses or does not answer.
type Upstream interface {
	// Versioning returns the versioning state of the bucket.
	Versioning(ctx context.Context) (Versioning, error)
	// SetVersioning changes the versioning state of the bucket.
	SetVersioning(ctx context.Context, v Versioning) error
	// Lock returns the object lock of the bucket, or nil if the bucket has no object lock.
	Lock(ctx context.Context) (*Lock, error)
	// SetLock changes the object lock of the bucket.
	SetLock(ctx context.Context, l Lock) error
	// DeleteNothing sends a list of deletions without an object, which some servers accept.
	DeleteNothing(ctx context.Context) error
}

// Lock is the configuration of a bucket with object lock: the default retention of new versions.
type Lock struct {
	Mode  string // "GOVERNANCE" or "COMPLIANCE"; empty means that there is no default retention
	Days  int32  // length of the default retention, if Years is 0
	Years int32  // length of the default retention, if Days is 0
}

type detailed struct{}

// Detailed returns a context for Objects.Stat. The context tells a store with upstream buckets to ask the upstream for
// everything that can change without a new ETag: tags, retention and legal hold. Info.Parts is set if the upstream
// lists parts. If part is not 0, the caller needs the part with that number: Info.Part is set if the upstream does not
// list parts and the object has the part.
func Detailed(ctx context.Context, part int) context.Context {
	return context.WithValue(ctx, detailed{}, part)
}

// AsksForDetails returns the part number that Detailed put into the context, and whether Detailed made the context.
func AsksForDetails(ctx context.Context) (part int, ok bool) {
	part, ok = ctx.Value(detailed{}).(int)
	return part, ok
}

// PartRange is the place of one part in the content of a multipart object.
type PartRange struct {
	Range
	Count int // number of parts of the object; 0 means that the upstream ignores part numbers
}
