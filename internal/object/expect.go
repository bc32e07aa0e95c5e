// SPDX-License-Identifier: Apache-2.0

package object

import "context"

type expected struct{}

// ExpectRange returns a context for Objects.Open. The context tells the store which range of the content the caller is
// going to read. A store in front of another server can then ask for this range at once. An N of -1 reaches to the end
// of the content. The range is a hint: the caller may read other ranges.
func ExpectRange(ctx context.Context, r Range) context.Context {
	return context.WithValue(ctx, expected{}, r)
}

// ExpectedRange returns the range that ExpectRange put into the context, or the whole content.
func ExpectedRange(ctx context.Context) Range {
	if r, ok := ctx.Value(expected{}).(Range); ok {
		return r
	}
	return Range{N: -1}
}

// Served tells how a read is served from a bucket that another S3 server keeps.
type Served struct {
	From     string // one of the Served constants
	Age      int64  // seconds since the other server was asked about the object last
	Verified string // how the whole content was compared: "crc64nvme", "crc32c", "crc32", "md5" or "length+etag"
}

// The values of Served.From.
const (
	ServedHit      = "hit"      // all bytes are on the local disk, or in memory on their way to the disk
	ServedPeer     = "peer"     // some bytes come from another node of the cluster
	ServedUpstream = "upstream" // some bytes come from the other S3 server
	ServedStale    = "stale"    // all bytes are on the local disk, and the other S3 server does not answer
)

// Sourced is a Content that knows how its bytes are served.
type Sourced interface {
	// Served tells how the range r is served.
	Served(r Range) Served
}
