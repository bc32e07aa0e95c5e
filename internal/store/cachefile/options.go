// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Options are the settings of a cache. Dir and Capacity are required.
type Options struct {
	Dir string // created if missing; nothing else may use it
	FS  vfs.FS // nil: the file system of the operating system
	// Capacity is the largest number of bytes that cached blocks may occupy on the disk. The database needs about
	// 1 KiB more for each entry, and 8 bytes for each block.
	Capacity int64
	// High and Low are shares of Capacity. If an entry would raise the cache above High, entries are evicted until
	// the cache is at Low, as far as the Guard lets them go. The value 0 means 0.90 and 0.85.
	High, Low float64
	// Inline is the largest size in bytes of content that is stored in the database; 0 means 4096, negative means none.
	Inline int64
	// MostKnown is the largest number of Known records; 0 means 1,000,000.
	MostKnown int64
	// OpenFiles is the largest number of files that stay open without a user; 0 means a quarter of the process's
	// descriptor limit, at most 1024.
	OpenFiles int
	// Reserve is the free space in bytes below which Put refuses blocks; 0 means 64 MiB, negative means none.
	Reserve int64
	// Memory limits the caches of the database in bytes; 0 means 64 MiB.
	Memory int64
	// FlushBytes is the number of bytes that are not durable at which the flusher runs; 0 means 64 MiB.
	FlushBytes int64
	// FlushEvery is the longest time until the flusher makes a block durable; 0 means 5 s, negative means that only
	// FlushBytes and Flush count.
	FlushEvery time.Duration
	// ColdTime is the shortest idle time before an eviction while no re-read interval is known; 0 means 10 minutes,
	// negative means none. See Guard.
	ColdTime time.Duration
	// ReadOnlyMount makes Entry.Open open files through a read-only mount of Dir, if the process may create one.
	// Store.Reopenable returns the reason if there is no read-only mount.
	ReadOnlyMount bool
	// Now returns the time; nil means time.Now.
	Now func() time.Time
	// Failed is called with each error of background work, on the goroutine that has the error. Failed may be nil.
	Failed func(error)
}

const (
	defaultHigh   = 0.90
	defaultLow    = 0.85
	defaultInline = 4 << 10
	maxInline     = 64 << 10
	maxSize       = 5 << 40 // the largest object of S3
)

// defaults checks the options and sets what is missing.
func (o *Options) defaults() error {
	const op = "open cache"
	if o.Dir == "" {
		return errs.New(errs.Invalid, op, "", "no directory is named")
	}
	if o.Capacity <= 0 {
		return errs.New(errs.Invalid, op, o.Dir, fmt.Sprintf("the capacity is %d bytes, expected more than 0", o.Capacity))
	}
	set(&o.High, defaultHigh)
	set(&o.Low, min(defaultLow, o.High))
	if o.High < 0 || o.High > 1 || o.Low < 0 || o.Low > o.High {
		return errs.New(errs.Invalid, op, o.Dir,
			fmt.Sprintf("the watermarks are %g and %g, expected 0 < low <= high <= 1", o.High, o.Low))
	}
	set(&o.Inline, defaultInline)
	if o.Inline > maxInline {
		return errs.New(errs.Invalid, op, o.Dir, fmt.Sprintf("inline is %d bytes, expected at most %d", o.Inline, maxInline))
	}
	set(&o.MostKnown, 1_000_000)
	set(&o.OpenFiles, openFilesHere())
	if o.OpenFiles < 0 || o.MostKnown < 0 {
		return errs.New(errs.Invalid, op, o.Dir, fmt.Sprintf("open files are %d and known records are %d, expected 0 or more",
			o.OpenFiles, o.MostKnown))
	}
	set(&o.Reserve, 64<<20)
	set(&o.Memory, 64<<20)
	set(&o.FlushBytes, 64<<20)
	set(&o.FlushEvery, 5*time.Second)
	set(&o.ColdTime, 10*time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	return nil
}

// set gives v its default if it is zero.
func set[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// openFilesHere leaves three quarters of the process's descriptors to connections and the database.
func openFilesHere() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 256
	}
	return int(max(16, min(lim.Cur/4, 1024)))
}
