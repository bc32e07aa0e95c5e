// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Handout is a data file of which clients get open descriptors. While the Handout is open, the file keeps its bytes
// and its names, even if Remove was called. All methods of Handout are safe for concurrent use.
type Handout struct {
	f       *Files
	id      ID
	size    int64
	sums    []uint64
	release func()
	gone    func() // called after release; may be nil

	mu     sync.Mutex
	first  *os.File // opened in advance for the first Open; may be nil
	closed bool
}

// HandOut holds the data file with this ID and size: the file keeps its names until the Handout is closed. The function
// sums returns the checksums of the file's blocks; HandOut calls it at once, unless another Handout of the file has
// already loaded the checksums. If the file is missing or shorter than size, HandOut returns a *Damage.
//
// HandOut opens the file to prove that it exists. The first call of Handout.Open returns the descriptor that HandOut
// opened, so the file is not opened twice.
func (f *Files) HandOut(id ID, size int64, sums func() ([]uint64, error)) (*Handout, error) {
	const op = "hand out"
	if err := checkSize(op, id.String(), 0, size); err != nil {
		return nil, err
	}
	h, release := f.hold(id, size)
	o := &Handout{f: f, id: id, size: size, release: release}
	err := o.begin(op)
	if err == nil {
		o.sums, err = h.load(size, sums)
	}
	if err != nil {
		_ = o.Close()
		return nil, err
	}
	return o, nil
}

// load returns the sums of the first size bytes, which are loaded once however many Handouts the file has. A file that
// has grown since has other sums.
func (h *hold) load(size int64, sums func() ([]uint64, error)) ([]uint64, error) {
	h.sumsMu.Lock()
	defer h.sumsMu.Unlock()
	if !h.loaded || h.of != size {
		s, err := sums()
		if err != nil {
			return nil, err
		}
		h.sums, h.loaded, h.of = s, true, size
	}
	return h.sums, nil
}

// begin checks that the file exists and is long enough.
func (o *Handout) begin(op string) error {
	size, err := o.look()
	switch {
	case missing(err):
		return &Damage{ID: o.id, File: o.f.Path(o.id), N: o.size, What: "missing", Err: err}
	case rotten(err):
		return &Damage{ID: o.id, File: o.f.Path(o.id), N: o.size, What: "unreadable", Err: err}
	case err != nil:
		return errs.Wrap(op, o.f.Path(o.id), err)
	case size < o.size:
		return &Damage{ID: o.id, File: o.f.Path(o.id), Off: size, N: o.size - size, What: "short"}
	}
	return nil
}

func (o *Handout) look() (size int64, err error) {
	if !o.f.native {
		file, err := o.f.find(o.id)
		if err != nil {
			return 0, err
		}
		defer func() { _ = file.Close() }() // nothing was written through it
		info, err := file.Stat()
		if err != nil {
			return 0, err
		}
		return info.Size(), nil
	}
	file, err := o.f.describe(o.id, 0)
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	err = unix.Fstat(int(file.Fd()), &st)
	if err != nil || o.f.ahead.Add(1) > mostAhead {
		if err == nil {
			o.f.ahead.Add(-1)
		}
		_ = file.Close() // nothing was written through it
		return st.Size, err
	}
	o.first = file
	return st.Size, nil
}

// mostAhead limits the descriptors that are open in advance: some Handouts live long and never use theirs.
const mostAhead = 64

// take returns the descriptor that was opened in advance, or nil if there is none. The caller holds mu.
func (o *Handout) take() *os.File {
	file := o.first
	if file != nil {
		o.first = nil
		o.f.ahead.Add(-1)
	}
	return file
}

// Sums returns the checksums of at most n blocks; the parameter first is the number of the first block. The caller must
// not change the returned slice.
func (o *Handout) Sums(first, n int64) ([]uint64, error) {
	return Window(o.f.Path(o.id), o.sums, first, n)
}

// Window returns at most n elements of the slice sums; the parameter first is the index of the first element. Window
// fails with kind Invalid if first or n is negative, or if first is beyond the end of the slice. The parameter called
// name is used only in the error text.
func Window(name string, sums []uint64, first, n int64) ([]uint64, error) {
	all := int64(len(sums))
	if first < 0 || n < 0 || first > all {
		return nil, errs.New(errs.Invalid, "sums", name,
			fmt.Sprintf("%d from block %d on, there are %d blocks", n, first, all))
	}
	return sums[first : first+min(n, all-first) : first+min(n, all-first)], nil
}

// Open returns a new read-only descriptor of the file; the caller closes it. If direct is set, the descriptor has
// O_DIRECT. Open fails with kind Unsupported if the file system is not that of the operating system, or if it does not
// support O_DIRECT.
func (o *Handout) Open(direct bool) (*os.File, error) {
	const op = "hand out"
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return nil, errs.New(errs.Closed, op, o.f.Path(o.id), "the handle is closed")
	case !o.f.native:
		return nil, foreign(op, o.f.Path(o.id))
	}
	if file := o.take(); file != nil {
		if !direct {
			return file, nil
		}
		_ = file.Close() // who asks for the other kind first seldom asks for this one
	}
	flags := 0
	if direct {
		flags = unix.O_DIRECT
	}
	file, err := o.f.describe(o.id, flags)
	if err != nil {
		return file, undirected(op, o.f.Path(o.id), direct, err)
	}
	return file, nil
}

// Path returns the current name of the file, in tmp/ or in data/.
func (o *Handout) Path() string {
	if _, err := o.f.fs.Stat(o.f.tmpName(o.id)); err == nil {
		return o.f.tmpName(o.id)
	}
	return o.f.dataName(o.id)
}

// Close ends the hold on the file, so that its names may be removed. Close can be called more than once.
func (o *Handout) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	o.closed = true
	if file := o.take(); file != nil {
		_ = file.Close() // nothing was written through it
	}
	o.release()
	if o.gone != nil {
		o.gone()
	}
	return nil
}

// describe opens a file by its name in data/ or tmp/. The descriptor has a description of its own, and no O_NONBLOCK,
// which cuFile refuses. The caller holds the file, so that the name stays.
func (f *Files) describe(id ID, flags int) (*os.File, error) {
	names := []func(ID) string{f.dataName, f.tmpName, f.dataName}
	if f.settler.inTmp(id) {
		names = names[1:]
	}
	var file *os.File
	var err error
	for _, name := range names {
		name := name(id)
		if file, err = f.lent.Open(name, flags); !missing(err) {
			return file, taken(name, err)
		}
	}
	return nil, err
}

// undirected explains why an O_DIRECT open was refused.
func undirected(op, name string, direct bool, err error) error {
	if direct && isErrno(err, unix.EINVAL, unix.EOPNOTSUPP) {
		return &errs.Error{Kind: errs.Unsupported, Op: op, Name: name,
			Msg: "the file system has no way past its page cache (O_DIRECT)", Err: err,
			Fix: "read and write through the page cache, or put the store on ext4 or xfs"}
	}
	return fail(op, name, err)
}

// foreign returns the error for files without descriptors.
func foreign(op, name string) error {
	return errs.New(errs.Unsupported, op, name, "the store's files are not the operating system's, and have no "+
		"descriptors").
		WithFix("read and write the bytes through the store")
}

// spills counts the files that exist only for a Handout.
type spills struct{ count, bytes atomic.Int64 }

// Spill writes inline content (content that is stored in the metadata) to the file tmp/<id> and returns a Handout of
// this file. The caller's metadata must not record the file: Handout.Close removes the file, and after a crash Recover
// removes it.
func (f *Files) Spill(id ID, content []byte, sums []uint64) (*Handout, error) {
	const op = "spill"
	name := f.tmpName(id)
	if !f.native {
		return nil, foreign(op, name)
	}
	w, err := f.Create(id, int64(len(content)))
	if err != nil {
		return nil, err
	}
	if _, err := w.file.Write(content); err != nil {
		return nil, w.fail(op, err)
	}
	file := w.file
	w.file = nil
	if err := file.Close(); err != nil {
		return nil, w.fail(op, err)
	}
	f.spills.count.Add(1)
	f.spills.bytes.Add(int64(len(content)))
	_, release := f.hold(id, 0)
	return &Handout{f: f, id: id, size: int64(len(content)), sums: sums, release: release, gone: func() {
		_ = w.Abort() // what cannot be removed, Recover will
		f.spills.count.Add(-1)
		f.spills.bytes.Add(-int64(len(content)))
	}}, nil
}

// Reopenable returns nil if a descriptor from HandOut cannot be reopened for writing, or the reason why it can.
// Without a read-only mount, anybody with write permission on the file can reopen the descriptor for writing.
func (f *Files) Reopenable() error { return f.lent.Reopenable() }
