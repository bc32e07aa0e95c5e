// SPDX-License-Identifier: Apache-2.0

// Package datafile keeps the content of objects: one plain file each, contiguous,
// never rewritten, with a CRC-64/NVME for every block of 1 MiB.
//
// A file is named by a number that the caller allocates in ascending order and never
// reuses. Content begins its life as tmp/<id> and ends in data/xx/yy/<id>:
//
//	Create   makes tmp/<id>, Fill writes it, Sync makes bytes and name durable;
//	         then the caller commits its metadata, which is the commit point.
//	Settle   links tmp/<id> to data/xx/yy/<id> in the background, makes that name
//	         durable and only then takes the first name away.
//	Recover  at start settles what the metadata knows and removes the rest of tmp/.
//
// So a file that was acknowledged has, at every instant and after every loss of
// power, at least one durable name. Whoever opens a file looks in data/, in tmp/,
// and once more in data/, and therefore finds it while it moves.
//
// A file can be handed out as open descriptions of it (HandOut), keeps its names for as long, and
// can be written by others in the same way (NewDraft).
//
// The sums are not kept here: they are returned to the caller, who keeps them with
// its metadata and hands them in again for reading.
//
// Every method may be called from many goroutines at once unless it says otherwise.
package datafile

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

const (
	// Block is the number of bytes that have a sum of their own; the last block of a file may be shorter.
	Block = 1 << 20
	// MaxSize bounds a file, so that no sum of offsets can overflow: 5 TiB, the largest object of S3.
	MaxSize = 5 << 40
)

// ID names a file. IDs are given out by the caller, ascending, each once.
type ID uint64

// String is the ID as it stands in names: 16 hexadecimal digits.
func (id ID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// ParseID reads what String wrote and accepts no other spelling.
func ParseID(s string) (ID, error) {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil || ID(n).String() != s {
		return 0, errs.New(errs.Invalid, "parse file name", s,
			"is not the name of a data file; expected 16 lower-case hexadecimal digits")
	}
	return ID(n), nil
}

// Policy says when reads compare content with its sums.
type Policy string

// The policies.
const (
	// VerifyFirst compares each block once for as long as its file stays open in the cache.
	VerifyFirst Policy = "first"
	// VerifyAlways compares each block immediately before each time it is handed out.
	VerifyAlways Policy = "always"
	// VerifyNever leaves finding damage to scrubbing.
	VerifyNever Policy = "never"
)

// Options says where the files are and how they are treated. FS and Dir are required.
type Options struct {
	FS     vfs.FS
	Dir    string // tmp/ and data/ lie in it
	Verify Policy // empty: VerifyFirst
	// OpenFiles bounds how many files stay open without a reader; 0: a quarter of what the process may open, at most 1024.
	OpenFiles int
	// ReadOnlyMount opens what is handed out through a read-only mount of the directory, where the process may make one;
	// see Reopenable.
	ReadOnlyMount bool
	// Released hears of a file that Remove had to leave because it was held, when the last hold is given back: it can be
	// removed now. It is called on the goroutine that gave the hold back.
	Released func(ID)
	// Failed hears of an error while settling, which nobody waits for. The file stays readable where it is, and is tried
	// again.
	Failed func(ID, error)
	// ReadOnly opens the files for reading alone: nothing is made, changed or synced before BeginWrites.
	ReadOnly bool
}

// Files are the data files of one store. One Files at a time owns a directory; the caller sees to that.
type Files struct {
	fs   vfs.FS
	opts Options
	tmp  string
	data string
	join *checksum.Joiner
	// native says that names can be opened by system calls too: the files have descriptors.
	native bool

	tmpDir *group // syncs tmp/

	// names is held for reading while a name is looked up to be opened for writing, or made by settling, and for writing
	// while names are taken away: opening for writing creates what is not there.
	names sync.RWMutex

	settler  settler
	cache    cache
	holds    holds
	spills   spills
	drafts   drafts
	readOnly readOnly
	ahead    atomic.Int64 // descriptors that Handouts have opened ahead
	buffers  buffers
	hashes   hashes
	checks   chan struct{} // bounds the blocks that are in memory to be compared
}

// Open makes the directories where they are missing, and starts the settling. It looks at no file: see Recover.
// With ReadOnly it changes nothing: BeginWrites does the rest.
func Open(o Options) (*Files, error) {
	const op = "open data files"
	if o.FS == nil || o.Dir == "" {
		return nil, errs.New(errs.Invalid, op, o.Dir, "needs a file system and a directory")
	}
	switch o.Verify {
	case "":
		o.Verify = VerifyFirst
	case VerifyFirst, VerifyAlways, VerifyNever:
	default:
		return nil, errs.New(errs.Invalid, op, o.Dir, fmt.Sprintf("verify is %q, expected %q, %q or %q", o.Verify,
			VerifyFirst, VerifyAlways, VerifyNever))
	}
	if o.OpenFiles == 0 {
		o.OpenFiles = openFilesHere()
	}
	if o.OpenFiles < 0 {
		return nil, errs.New(errs.Invalid, op, o.Dir, fmt.Sprintf("open files are %d, expected 0 or more", o.OpenFiles))
	}
	f := &Files{
		fs: o.FS, opts: o, tmp: o.FS.PathJoin(o.Dir, "tmp"), data: o.FS.PathJoin(o.Dir, "data"),
		join: checksum.NewJoiner(), checks: make(chan struct{}, mostChecks),
	}
	f.cache.start(f)
	f.settler.start(f)
	if o.ReadOnly {
		// Whether files have descriptors is seen at the directory of the store.
		if dir, err := f.fs.OpenDir(o.Dir); err == nil {
			f.native = dir.Fd() != vfs.InvalidFd
			_ = dir.Close() // nothing was written through it
		}
		return f, nil
	}
	if err := f.BeginWrites(); err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// BeginWrites makes files that were opened with ReadOnly writable: it makes the directories and their names durable.
// It is called before anything is written and not at the same time as any other method. It may be called again after an
// error.
func (f *Files) BeginWrites() error {
	const op = "open data files"
	if f.tmpDir != nil {
		return nil
	}
	// Above a directory that was there nothing is ours, not even to be opened.
	dirs := []string{f.opts.Dir}
	if _, err := f.fs.Stat(f.opts.Dir); missing(err) {
		dirs = append(dirs, f.fs.PathDir(f.opts.Dir))
	}
	for _, dir := range []string{f.tmp, f.data} {
		if err := f.fs.MkdirAll(dir, 0o700); err != nil {
			return fail(op, dir, err)
		}
	}
	for _, dir := range dirs {
		if err := f.syncDir(dir); err != nil {
			return fail(op, dir, err)
		}
	}
	dir, err := f.fs.OpenDir(f.tmp)
	if err != nil {
		return fail(op, f.tmp, err)
	}
	f.native = dir.Fd() != vfs.InvalidFd
	f.tmpDir = newGroup(dir.Sync, dir.Close)
	if f.native && f.opts.ReadOnlyMount {
		f.readOnly.mount(f.opts.Dir)
	}
	return nil
}

// Close settles what is committed, and lets go of all files; readers that are still open keep theirs. Writers have to
// be gone. It is called once.
func (f *Files) Close() error {
	err := f.settler.stop()
	f.cache.stop()
	f.hashes.stop()
	f.readOnly.close()
	f.drafts.mu.Lock()
	defer f.drafts.mu.Unlock()
	for d := range f.drafts.open {
		if d.left {
			d.left = false
			d.drop()
		}
	}
	if f.tmpDir == nil {
		return err // never written
	}
	if e := f.tmpDir.close(); err == nil && e != nil {
		err = fail("close", f.tmp, e)
	}
	return err
}

// tmpName is where the content of id is until it is settled.
func (f *Files) tmpName(id ID) string { return f.fs.PathJoin(f.tmp, id.String()) }

// home is the directory in which id ends: neighbours, 4096 of them, share one, so that one sync makes many names
// durable.
func (f *Files) home(id ID) string {
	return f.fs.PathJoin(f.data, fmt.Sprintf("%02x", uint64(id)>>20), fmt.Sprintf("%02x", uint64(id)>>12&0xff))
}

// dataName is where the content of id is after it was settled.
func (f *Files) dataName(id ID) string { return f.fs.PathJoin(f.home(id), id.String()) }

// Path is the name under which id ends, for messages; the file may still be in tmp/.
func (f *Files) Path(id ID) string { return f.dataName(id) }

// syncDir makes the names in a directory durable.
func (f *Files) syncDir(dir string) error {
	d, err := f.fs.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

// blocks is how many blocks size bytes have.
func blocks(size int64) int64 { return (size + Block - 1) / Block }

// checkSize refuses what no file can hold.
func checkSize(op, name string, off, size int64) error {
	if off < 0 || size < 0 || off > MaxSize || size > MaxSize-off {
		return object.Fail(op, name, object.ErrTooLarge,
			fmt.Sprintf("%d bytes at offset %d; a file has at most %d", size, off, int64(MaxSize)))
	}
	return nil
}

// openFilesHere leaves three quarters of the process's descriptors to connections and the metadata.
func openFilesHere() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 256
	}
	return int(max(16, min(lim.Cur/4, 1024)))
}
