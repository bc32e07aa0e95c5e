// SPDX-License-Identifier: Apache-2.0

// Package datafile keeps the content of objects: one contiguous plain file for each version, never rewritten. Each
// block of 1 MiB has a CRC-64/NVME checksum.
//
// The name of a data file is a number. The caller assigns the numbers of data files in ascending order and never reuses
// a number. A data file is created as tmp/<id> and then moved to data/xx/yy/<id>:
//
//	Create   creates tmp/<id>, Fill writes it, Sync makes content and name durable;
//	         then the caller commits its metadata, which is the commit point.
//	Settle   links tmp/<id> to data/xx/yy/<id> in the background, makes the new name
//	         durable and only then removes the old name.
//	Recover  settles the files that the metadata knows, at start, and removes the rest of tmp/.
//
// An acknowledged data file has at least one durable name at every moment, even after a power loss. A file is opened by
// trying its name in data/, then in tmp/, then again in data/, so that it is found even while it is being moved.
//
// HandOut gives a client open descriptors of a data file; the file keeps its names until the client is done. NewDraft
// creates a data file that a client writes.
//
// Package datafile returns the checksums of content (the sums) to the caller and does not store them. The caller stores
// the checksums with its metadata, and passes them to the functions that read content.
//
// All methods of this package are safe for concurrent use unless their comment says otherwise.
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
	"github.com/nebulaio/nebulaio/internal/store/lend"
)

const (
	// Block is the number of bytes that one checksum covers; the last block of a file may be shorter.
	Block = 1 << 20
	// MaxSize is the largest size of a data file: 5 TiB, the largest object of S3. The limit MaxSize also keeps
	// additions of file offsets from overflowing.
	MaxSize = 5 << 40
)

// ID is the number that names a data file. The caller assigns IDs in ascending order, each only once.
type ID uint64

// String returns the ID as file names contain it: 16 hexadecimal digits.
func (id ID) String() string { return string(appendHex(nil, uint64(id), 16)) }

// appendHex appends n in hexadecimal, with zeros in front up to the given number of digits. The names of files are made
// for every open, and package fmt would take most of the time for them.
func appendHex(b []byte, n uint64, digits int) []byte {
	for place := 4 * (digits - 1); place > 0 && n>>place == 0; place -= 4 {
		b = append(b, '0')
	}
	return strconv.AppendUint(b, n, 16)
}

// ParseID parses the 16 lower-case hexadecimal digits that ID.String returns, and refuses any other text.
func ParseID(s string) (ID, error) {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil || ID(n).String() != s {
		return 0, errs.New(errs.Invalid, "parse file name", s,
			"is not the name of a data file; expected 16 lower-case hexadecimal digits")
	}
	return ID(n), nil
}

// Policy decides when reads compare content with its checksums.
type Policy string

// A Policy is one of VerifyFirst, VerifyAlways and VerifyNever.
const (
	// VerifyFirst compares each block with its checksum only once while its file stays open in the cache of open files.
	VerifyFirst Policy = "first"
	// VerifyAlways compares a block with its checksum each time before the block is returned.
	VerifyAlways Policy = "always"
	// VerifyNever compares nothing during reads, so that only a scrub finds damage.
	VerifyNever Policy = "never"
)

// Options are the directory and the settings of Files. FS and Dir are required.
type Options struct {
	FS     vfs.FS
	Dir    string // the directory that contains tmp/ and data/
	Verify Policy // empty: VerifyFirst
	// OpenFiles is the largest number of files that stay open without a reader; 0 means a quarter of the process's
	// descriptor limit, at most 1024.
	OpenFiles int
	// ReadOnlyMount makes HandOut open files through a read-only mount of Dir, if the process may create one.
	// Files.Reopenable returns the reason if there is no read-only mount.
	ReadOnlyMount bool
	// Released is called when the last hold on a file ends, if Remove was called for that file before. After the call
	// of Released, a new call of Remove can remove the file. Released runs on the goroutine that ended the last hold on
	// the file.
	Released func(ID)
	// Failed is called with each error of the background task that moves committed files from tmp/ to data/. A file
	// that cannot be moved stays readable in tmp/, and the move is tried again.
	Failed func(ID, error)
	// ReadOnly opens the files only for reading: nothing is created, changed or synced until BeginWrites is called.
	ReadOnly bool
}

// Files are the data files of one store. The caller must ensure that only one Files uses a directory at a time.
type Files struct {
	fs   vfs.FS
	opts Options
	tmp  string
	data string
	join *checksum.Joiner
	// native means that the files have descriptors, so that system calls can open their names too.
	native bool

	tmpDir *group // syncs tmp/

	// names is held for reading while a name is looked up to be opened for writing, or is created by settling. It is
	// held for writing while names are removed, because opening for writing would create a missing file.
	names sync.RWMutex

	settler settler
	cache   cache
	holds   holds
	spills  spills
	drafts  drafts
	lent    *lend.Directory
	ahead   atomic.Int64 // descriptors that Handouts have opened in advance
	buffers buffers
	hashes  hashes
	checks  chan struct{} // limits the blocks that are in memory for comparison
}

// Open creates missing directories and starts the background task that moves committed files from tmp/ to data/. Open
// examines no data files; Recover examines the files in tmp/. If ReadOnly is set, Open changes nothing on disk, and
// BeginWrites creates the directories.
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
		join: checksum.NewJoiner(), checks: make(chan struct{}, mostChecks), lent: lend.New(o.Dir),
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

// BeginWrites makes Files that were opened with ReadOnly writable: it creates the directories and makes their names
// durable. BeginWrites must be called before any write, and not concurrently with any other method. After an error
// BeginWrites may be called again.
func (f *Files) BeginWrites() error {
	const op = "open data files"
	if f.tmpDir != nil {
		return nil
	}
	// If the store's directory existed before, its parent is not ours, not even to be opened.
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
		f.lent = lend.Mount(f.opts.Dir, "tmp", "data")
	}
	return nil
}

// Close moves committed files that are still in tmp/ to data/, and closes all files that no reader uses. Readers that
// are still open keep their files open. All Writers must have ended before Close. Close may be called only once.
func (f *Files) Close() error {
	err := f.settler.stop()
	f.cache.stop()
	f.hashes.stop()
	f.lent.Close()
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

// tmpName is the name of id's file until the file is settled.
func (f *Files) tmpName(id ID) string {
	return string(appendHex(append(append(make([]byte, 0, len(f.tmp)+17), f.tmp...), '/'), uint64(id), 16))
}

// home is the final directory of id's file. 4096 neighbouring files share one directory, so that one sync makes many
// names durable.
func (f *Files) home(id ID) string { return string(appendHome(nil, f.data, id)) }

// appendHome appends the name of id's directory below data, which is a clean name.
func appendHome(b []byte, data string, id ID) []byte {
	b = append(append(b, data...), '/')
	b = append(appendHex(b, uint64(id)>>20, 2), '/')
	return appendHex(b, uint64(id)>>12&0xff, 2)
}

// dataName is the name of id's file after the file was settled.
func (f *Files) dataName(id ID) string {
	return string(appendHex(append(appendHome(make([]byte, 0, len(f.data)+32), f.data, id), '/'), uint64(id), 16))
}

// Path returns the final name of id's file, for use in messages; the file may still be in tmp/.
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

// blocks returns the number of blocks in size bytes.
func blocks(size int64) int64 { return (size + Block - 1) / Block }

// checkSize refuses a range beyond MaxSize.
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
