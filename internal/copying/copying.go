// SPDX-License-Identifier: Apache-2.0

// Package copying copies files and objects between local paths and S3 servers, and goes on where a killed copy ended.
//
// A download is pinned to one ETag, is written into a draft file beside its target, and gets the target's name when it
// is whole and its checksum was compared. A journal beside the draft has the checksum of each block. An upload is sent
// in parts, and its state is kept in a directory of the user's cache.
package copying

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/copying/journal"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

const (
	block = journal.Block
	// chunk is how many bytes are read and summed at once. They are still in the core's cache when they are summed.
	chunk = 256 << 10
	// window is how many bytes of downloads may be in flight: what a kill loses at most.
	window = 16 << 20
	// whole is the size up to which an object is read or written with one request.
	whole = 4 << 20

	// DefaultConcurrency is the number of concurrent requests if Options names none.
	DefaultConcurrency = 8
	mostConcurrency    = 128
)

// Options configure a Copier. The zero Options are valid.
type Options struct {
	// Concurrency is the largest number of concurrent requests; 0 means DefaultConcurrency. A server that asks for fewer
	// requests gets fewer.
	Concurrency int
	// Rate is the largest number of bytes per second of all copies together; 0 means no limit.
	Rate int64
	// ChecksumFiles makes each download also write its checksums, into FILE.crc64nvme.
	ChecksumFiles bool
	// States is a directory for the states of unfinished uploads. If it is empty, uploads are not resumed.
	States string
	// ContentType is the content type of new objects; empty means that of the server.
	ContentType string
}

// Copier copies files and objects. All methods are safe for concurrent use.
type Copier struct {
	o       Options
	gate    *gate
	limit   *limiter
	join    *checksum.Joiner
	buffers sync.Pool // of *[]byte, block bytes each

	moved, total atomic.Int64
	files, known atomic.Int64
}

// New returns a Copier. New fails with kind Invalid for options out of range.
func New(o Options) (*Copier, error) {
	if o.Concurrency == 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.Concurrency < 1 || o.Concurrency > mostConcurrency {
		return nil, errs.New(errs.Invalid, "copy", fmt.Sprintf("concurrency %d", o.Concurrency),
			fmt.Sprintf("is out of range; expected 1 to %d", mostConcurrency))
	}
	if o.Rate < 0 {
		return nil, errs.New(errs.Invalid, "copy", fmt.Sprintf("rate %d", o.Rate), "is negative; expected bytes per second")
	}
	c := &Copier{o: o, gate: newGate(o.Concurrency), limit: newLimiter(o.Rate), join: checksum.NewJoiner()}
	c.buffers.New = func() any {
		b := aligned(block)
		return &b
	}
	return c, nil
}

// Progress is the state of all copies of a Copier.
type Progress struct {
	Done, Total      int64 // bytes; the total grows while places are listed
	Files, AllFiles  int64
	ConcurrencyLimit int // concurrent requests that the servers allow at the moment
}

// Progress returns the state of all copies so far.
func (c *Copier) Progress() Progress {
	return Progress{Done: c.moved.Load(), Total: c.total.Load(), Files: c.files.Load(), AllFiles: c.known.Load(),
		ConcurrencyLimit: c.gate.now()}
}

// expect adds a file of n bytes to the work of the Copier.
func (c *Copier) expect(n int64) {
	c.total.Add(n)
	c.known.Add(1)
}

// Result says what one copy did.
type Result struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Bytes       int64  `json:"bytes"`
	// Moved is the number of bytes that this copy moved, and Resumed what an earlier copy had moved already.
	Moved   int64 `json:"moved"`
	Resumed int64 `json:"resumed"`
	// Way says how the bytes went: "http", "door", "file", or "server" for a copy inside a server.
	Way string `json:"way"`
	// Verified says what was compared. "crc64nvme", "crc32c", "crc32" and "md5" are checksums of the whole content that
	// the server keeps. "length+etag" means that the server keeps no checksum. "length" is for a copy of a file.
	Verified string   `json:"verified"`
	CRC64    string   `json:"crc64nvme,omitempty"` // of the whole content, in hexadecimal digits
	Hedged   int64    `json:"hedged,omitempty"`    // requests that were sent twice because the first was slow
	Notes    []string `json:"notes,omitempty"`
}

// Remote is an object on an S3 server, or the key that it will have.
type Remote struct {
	Client      *s3.Client
	Bucket, Key string
	Version     string // version to read; empty means the current one
}

// Name returns the s3:// URL of the object.
func (r Remote) Name() string { return s3.URL(r.Bucket, r.Key) }

// origin returns the server and bucket of the object as one text.
func (r Remote) origin() string { return r.Client.Endpoint() + "/" + r.Bucket }

// Requests to a server that is near are long, because each request costs the server more than the round trip costs us.
// What a kill loses is then bounded by the buffers of few connections instead of the length of the requests.
const (
	near        = time.Millisecond // round trips below are short
	nearWorkers = 3
	nearPiece   = 64 << 20
	nearAhead   = 128 << 10 // Linux doubles it
)

// pieces returns the number of concurrent requests for one content, and the number of blocks of each, so that at most
// window bytes are in flight.
func (c *Copier) pieces(f facts, size int64) (workers int, blocks int64) {
	if f.near && c.o.Concurrency == DefaultConcurrency || c.o.Concurrency <= nearWorkers {
		workers = min(nearWorkers, c.o.Concurrency)
		return workers, min(nearPiece/block, max(1, size/block/int64(4*workers)))
	}
	return c.o.Concurrency, max(1, window/block/int64(c.o.Concurrency))
}

// readers is the number of goroutines that read local files at once.
func readers() int { return min(runtime.GOMAXPROCS(0), 4) }

// Names of files and directories of this package.
const (
	draftSuffix   = ".nebulaio-draft"
	journalSuffix = ".nebulaio-journal"
	stagingPrefix = ".nebulaio-staging-"
)

// Ours reports whether a key names a file of this package, such as a draft or a journal. No copy takes it along.
func Ours(key string) bool {
	for part := range strings.SplitSeq(key, "/") {
		if strings.HasPrefix(part, stagingPrefix) || strings.HasPrefix(part, ".") &&
			(strings.HasSuffix(part, draftSuffix) || strings.HasSuffix(part, journalSuffix)) {
			return true
		}
	}
	return false
}
