// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// truth holds what is known of one file's storage and page cache during a load. It decides the route under which a
// read is reported.
type truth struct {
	f       *vfs.File
	bypass  bool // the load must leave the page cache as it was
	storage func() vfs.Storage
	// before are the pages that were cached when the load began; nil if unknown.
	before    *vfs.Pages
	beforeErr error
	// left counts the bytes that the load brought into the page cache and could not drop.
	left    int64
	leftErr error
}

// newTruth prepares one file of a load. It asks for cached pages only if they will be needed, which is one call for a
// file that is not cached.
func newTruth(f *vfs.File, route report.Route, cache report.CachePolicy, below *vfs.Storages) *truth {
	u := &truth{f: f, bypass: cache == report.CacheBypass && f.Remote() == nil && !f.FS().Memory}
	u.storage = sync.OnceValue(func() vfs.Storage {
		if f.Remote() != nil {
			return vfs.Storage{FS: f.FS()}
		}
		if f.Pin() == nil {
			defer f.Unpin()
		}
		return below.OfFile(f)
	})
	if u.bypass || u.bringsPages(route, cache) {
		if u.before, u.beforeErr = f.CachedPages(); u.beforeErr != nil {
			u.before = nil
		}
	}
	return u
}

// bringsPages reports whether a read of this load may bring pages into the page cache that another read of the same
// load finds there later. Buffered reads of absent bytes do, and so do direct reads that fall back to the page cache.
func (u *truth) bringsPages(route report.Route, cache report.CachePolicy) bool {
	if u.f.Remote() != nil || u.f.FS().Memory {
		return false
	}
	direct, _ := u.f.Direct()
	return !direct || route == report.RouteBuffered || cache == report.CacheKeep || u.storage().Falls
}

// buffered corrects the counts of a buffered read of [off, off+n). Pages that were absent when the load began came from
// storage, even if another read of this load has brought them in meanwhile.
func (u *truth) buffered(b vfs.Buffered, off, n int64) vfs.Buffered {
	if u.before == nil {
		return b
	}
	if was := u.before.In(off, n); was < b.Cached {
		b.Missed += b.Cached - was
		b.Cached = was
	}
	return b
}

// below returns the route of bytes that came from storage: r, or its unproven form.
func (u *truth) below(r report.RouteTaken) report.RouteTaken {
	if u.storage().Hidden == "" {
		return r
	}
	return r.Unproven()
}

// countBuffered counts a buffered read of a chunk under the routes that its bytes took.
func (u *truth) countBuffered(y *tally.Tally, c plan.Chunk, b vfs.Buffered, start tally.Start) {
	own := min(c.Fetched, b.Cached)
	b = u.buffered(vfs.Buffered{Cached: b.Cached - own, Missed: b.Missed + own}, c.Off, c.Len)
	u.count(y, c.Extra, b, start)
}

// count adds a buffered read, which began at start, to the tally. It counts bytes under the routes that they took.
func (u *truth) count(y *tally.Tally, extra bool, b vfs.Buffered, start tally.Start) {
	missed := report.RouteTakenBuffered
	if b.Missed > 0 { // the storage is not examined for bytes that came from memory
		missed = u.below(report.RouteTakenBuffered)
	}
	y.ReadBuffered(extra, b, missed, start)
}

// readDirect calls read, which reads n bytes of the file, a superset of c, into buf with O_DIRECT. It counts the
// bytes under the route that they took. If the file system may fall back to the page cache, readDirect checks the
// page cache after the read.
func (u *truth) readDirect(y *tally.Tally, c plan.Chunk, buf []byte, n int64, read func() error) error {
	start := y.Begin(tally.StageReadDirect)
	if !u.storage().Falls {
		err := read()
		if err == nil {
			y.Read(c.Extra, u.below(report.RouteTakenDirect), c.Len, start)
		} else {
			start.Drop()
		}
		return err
	}
	// If the buffer has no pages yet, btrfs and gfs2 fall back to the page cache for the rest of a read.
	hostmem.Touch(buf, 1)
	warm := int64(0)
	if u.before != nil {
		warm = u.before.In(c.Off, c.Len)
	}
	fetched, counted := int64(0), false
	err := func() error {
		if warm == 0 {
			return read()
		}
		runtime.LockOSThread() // the kernel counts the bytes from storage for each thread
		defer runtime.UnlockOSThread()
		a, ok := fetchedByThread()
		err := read()
		b, ok2 := fetchedByThread()
		fetched, counted = b-a, ok && ok2
		return err
	}()
	if err != nil {
		start.Drop()
		return err
	}
	y.ReadParts(c.Extra, c.Len, u.parts(c, n, warm, fetched, counted), start)
	return nil
}

// parts divides the bytes of an O_DIRECT read by route. Bytes that are cached now and were not when the load began
// came through the page cache. Bytes that were cached before came from the page cache, unless the kernel counted that
// storage delivered all.
func (u *truth) parts(c plan.Chunk, n, warm, fetched int64, counted bool) []tally.Part {
	if u.storage().FS.Memory {
		return []tally.Part{{Route: report.RouteTakenCache, Bytes: c.Len}}
	}
	if u.before == nil {
		return []tally.Part{{Route: report.RouteTakenDirectUnproven, Bytes: c.Len}}
	}
	through, err := u.f.Since(u.before, c.Off, c.Len)
	if err != nil {
		return []tally.Part{{Route: report.RouteTakenDirectUnproven, Bytes: c.Len}}
	}
	through = min(through, c.Len-warm)
	out := []tally.Part{{Route: u.below(report.RouteTakenBuffered), Bytes: through}}
	switch {
	case counted && fetched >= n && through == 0:
		warm = 0
	case counted:
		out = append(out, tally.Part{Route: report.RouteTakenCache, Bytes: warm})
	default:
		out = append(out, tally.Part{Route: report.RouteTakenDirectUnproven, Bytes: warm})
	}
	return append(out, tally.Part{Route: u.below(report.RouteTakenDirect), Bytes: c.Len - through - warm})
}

// writtenDirect returns the route of a write with O_DIRECT. The write counts as direct only on file systems that never
// fall back to the page cache. A file system that falls back drops the pages after the write, which hides it.
func writtenDirect(s vfs.Storage) report.RouteTaken {
	if s.Proves() {
		return report.RouteTakenDirect
	}
	return report.RouteTakenDirectUnproven
}

// unprovenWrites returns the reason why O_DIRECT writes cannot be proven, or "" if they can.
func unprovenWrites(s vfs.Storage) string {
	switch {
	case s.FS.Memory || s.Proves():
		return ""
	case s.Hidden != "":
		return s.Hidden
	}
	return s.FS.Name + " may write through the page cache and drop the pages behind"
}

// fetchedByThread returns the number of bytes that storage delivered for the calling thread, or false if the kernel
// does not count them.
func fetchedByThread() (int64, bool) {
	text, err := os.ReadFile("/proc/thread-self/io")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "read_bytes:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// restore drops the pages that the load brought into the page cache, if the cache must stay as it was. It counts the
// bytes that could not be dropped.
func (u *truth) restore() {
	if !u.bypass || u.before == nil {
		return
	}
	u.left, u.leftErr = u.f.DropSince(u.before)
}

// describe adds the unproven routes and the bytes left in the page cache to the report of a file. note explains bytes
// that were left.
func (u *truth) describe(fr *report.File) (note string) {
	s := u.storage()
	fr.FS, fr.Unproven = s.FS.Name, s.Hidden
	if fr.Unproven == "" && s.Falls && fr.Direct && u.beforeErr != nil {
		fr.Unproven = fmt.Sprintf("%s may read through the page cache, and the kernel does not tell what is there",
			s.FS.Name)
	}
	if !u.bypass {
		return ""
	}
	switch err := errors.Join(u.beforeErr, u.leftErr); {
	case err != nil:
		return fmt.Sprintf("%s: what this load left in the page cache is not known: %v", u.f.Path(), err)
	case u.left > 0:
		fr.Left = u.left
		return fmt.Sprintf("%s: %s that this load brought in stay in the page cache: they are mapped or in use elsewhere",
			u.f.Path(), units.Bytes(u.left))
	}
	return ""
}
