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
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// truth is what is known of one file's storage while a load runs: it decides
// which route a read may be reported under.
type truth struct {
	f       *vfs.File
	bypass  bool // the load is to leave the page cache as it was
	storage func() vfs.Storage
	// before are the pages that were cached when the load began; nil: nobody tells.
	before    *vfs.Pages
	beforeErr error
	// left are bytes that the load brought into the page cache and could not drop.
	left    int64
	leftErr error
}

// newTruth prepares one file of a load. The page cache is asked now only where
// the answer will be needed: one question for a file that is not cached.
func (t *Transfer) newTruth(f *vfs.File, cache report.CachePolicy) *truth {
	u := &truth{f: f, bypass: cache == report.CacheBypass && f.Remote() == nil && !f.FS().Memory}
	u.storage = sync.OnceValue(func() vfs.Storage {
		if f.Remote() != nil {
			return vfs.Storage{FS: f.FS()}
		}
		if f.Pin() == nil {
			defer f.Unpin()
		}
		return t.e.storages.Of(f.BufferedFD())
	})
	if u.bypass || t.bringsPages(u, cache) {
		if u.before, u.beforeErr = f.CachedPages(); u.beforeErr != nil {
			u.before = nil
		}
	}
	return u
}

// bringsPages reports whether a read of this load may bring pages into the page cache that another read of the same load
// finds there later. Buffered reads of absent bytes do, and so do direct reads that fall back to the page cache.
func (t *Transfer) bringsPages(u *truth, cache report.CachePolicy) bool {
	if u.f.Remote() != nil || u.f.FS().Memory {
		return false
	}
	direct, _ := u.f.Direct()
	return !direct || t.req.Route == report.RouteBuffered || cache == report.CacheKeep || u.storage().Falls
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

// truthOf is what is known of a file's storage; nil before the load is planned.
func (t *Transfer) truthOf(file int) *truth { return t.truths[file] }

// below is the name of a route by which bytes came from below the page cache.
func (u *truth) below(r report.RouteTaken) report.RouteTaken {
	if u.storage().Hidden == "" {
		return r
	}
	return r.Unproven()
}

// countBuffered counts a buffered read of a chunk under the routes that its bytes took.
func (t *Transfer) countBuffered(c plan.Chunk, b vfs.Buffered, start time.Time) {
	u := t.truthOf(c.File)
	b = u.buffered(b, c.Off, c.Len)
	missed := report.RouteTakenBuffered
	if b.Missed > 0 { // the storage is not examined for bytes that came from memory
		missed = u.below(report.RouteTakenBuffered)
	}
	t.tally.readBuffered(c, b, missed, start)
}

// readDirect lets read fetch the n bytes at off of the file into buf with
// O_DIRECT, and counts them under the route that they took. Where the file
// system may fall back, the page cache is asked behind the read.
func (t *Transfer) readDirect(c plan.Chunk, buf []byte, off, n int64, read func() error) error {
	u, start := t.truthOf(c.File), time.Now()
	if !u.storage().Falls {
		err := read()
		if err == nil {
			t.tally.read(c, u.below(report.RouteTakenDirect), c.Len, start)
		}
		return err
	}
	// Memory without pages makes btrfs and gfs2 fall back for the rest of a read.
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
		runtime.LockOSThread() // what this thread makes storage deliver is counted for it alone
		defer runtime.UnlockOSThread()
		a, ok := fetchedByThread()
		err := read()
		b, ok2 := fetchedByThread()
		fetched, counted = b-a, ok && ok2
		return err
	}()
	if err != nil {
		return err
	}
	t.tally.readParts(c, u.parts(c, n, warm, fetched, counted), start)
	return nil
}

// share is a part of a read by its route.
type share struct {
	route report.RouteTaken
	bytes int64
}

// parts divides a read that was made with O_DIRECT. Bytes that are in the page
// cache now and were not when the load began came through it. Bytes that were
// there before came from there, unless the kernel counted that it fetched all.
func (u *truth) parts(c plan.Chunk, n, warm, fetched int64, counted bool) []share {
	if u.storage().FS.Memory {
		return []share{{report.RouteTakenCache, c.Len}}
	}
	if u.before == nil {
		return []share{{report.RouteTakenDirectUnproven, c.Len}}
	}
	through, err := u.f.Since(u.before, c.Off, c.Len)
	if err != nil {
		return []share{{report.RouteTakenDirectUnproven, c.Len}}
	}
	through = min(through, c.Len-warm)
	out := []share{{u.below(report.RouteTakenBuffered), through}}
	switch {
	case counted && fetched >= n && through == 0:
		warm = 0
	case counted:
		out = append(out, share{report.RouteTakenCache, warm})
	default:
		out = append(out, share{report.RouteTakenDirectUnproven, warm})
	}
	return append(out, share{u.below(report.RouteTakenDirect), c.Len - through - warm})
}

// founded is a destination that tells what lies below it.
type founded interface{ Storage() vfs.Storage }

// storageBelow is what lies below the destination of a save, while it is open.
func (e *Engine) storageBelow(s Sink) vfs.Storage {
	switch d := s.(type) {
	case described:
		return e.storages.Of(d.FD())
	case founded:
		return d.Storage()
	}
	return vfs.Storage{FS: s.FS(), Hidden: "the destination does not tell what lies below it"}
}

// writtenDirect returns the route of a write with O_DIRECT. The write counts as direct only on file systems that never
// fall back to the page cache. A file system that falls back drops the pages after the write, which hides it.
func writtenDirect(s vfs.Storage) report.RouteTaken {
	if s.Proves() {
		return report.RouteTakenDirect
	}
	return report.RouteTakenDirectUnproven
}

// unprovenWrites says why direct writes cannot be proven, "" where they can.
func unprovenWrites(s vfs.Storage) string {
	switch {
	case s.FS.Memory || s.Proves():
		return ""
	case s.Hidden != "":
		return s.Hidden
	}
	return s.FS.Name + " may write through the page cache and drop the pages behind"
}

// fetchedByThread is how many bytes the calling thread has made storage deliver,
// false where the kernel does not count them.
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

// restore drops what the load has brought into the page cache of files that are
// to be left as they were, and notes what could not be dropped.
func (t *Transfer) restore() {
	for _, u := range t.truths {
		if u == nil || !u.bypass || u.before == nil {
			continue
		}
		n, err := u.f.Since(u.before, 0, u.f.Size())
		if err == nil && n > 0 {
			n, err = u.f.DropSince(u.before)
		}
		u.left, u.leftErr = n, err
	}
}

// describeTruth adds what the storage of a file hides, and what a load has left
// in the page cache though it was to leave nothing.
func (u *truth) describeTruth(r *report.Report, fr *report.File) {
	s := u.storage()
	fr.FS, fr.Unproven = s.FS.Name, s.Hidden
	if fr.Unproven == "" && s.Falls && fr.Direct && u.beforeErr != nil {
		fr.Unproven = fmt.Sprintf("%s may read through the page cache, and the kernel does not tell what is there", s.FS.Name)
	}
	if !u.bypass {
		return
	}
	switch err := errors.Join(u.beforeErr, u.leftErr); {
	case err != nil:
		r.Notes = append(r.Notes, fmt.Sprintf("%s: what this load left in the page cache is not known: %v", u.f.Path(), err))
	case u.left > 0:
		fr.Left = u.left
		r.Notes = append(r.Notes, fmt.Sprintf("%s: %s that this load brought in stay in the page cache: they are mapped or in use elsewhere",
			u.f.Path(), units.Bytes(u.left)))
	}
}
