// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// Block is the number of bytes of the file in one slot. A block begins at a multiple of Block.
const Block = 2 * units.MiB

// Limits of the memory.
const (
	leastSlots = 32
	mostSlots  = 512
	members    = 64
)

// Layout of the memory. It is the protocol between processes, also of different versions: a change needs another magic
// number.
const (
	magic      = 0x3147_4843_584f_494e // "NIOXCHG1"
	memberSize = 64
	slotSize   = 64
	memberAt   = 4096
	slotAt     = memberAt + members*memberSize
	dataAt     = Block
	name       = "nebulaio-exchange"
	seals      = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
)

// header is the first part of the memory. All fields but magic and moved are constant.
type header struct {
	magic   atomic.Uint64 // written last
	slots   int64
	version vfs.Version
	made    int64         // time in nanoseconds: of two memories for one file, the older one is used
	moved   atomic.Uint32 // changes when a load is done with blocks; loads wait for it
}

// member is the place of one load.
type member struct {
	id      atomic.Uint64 // the process in the low 32 bits, and a number that is unique in it; 0 means free
	low     atomic.Int64  // the load is done with all blocks before this one
	ignored atomic.Uint32 // 1 if nobody waits any more until the load is done with a block
	stuck   atomic.Uint32 // 1 if nobody waits any more for blocks that the load reads
}

// slot is the state of the place of one block.
type slot struct {
	word atomic.Uint64 // see pack
	turn atomic.Uint32 // changes with word; loads wait for it
}

// memory is a mapped exchange.
type memory struct {
	fd  int
	mem []byte
	raw unsafe.Pointer // the mapping with slack, so that mem begins at a multiple of Block
}

func (m *memory) header() *header { return (*header)(unsafe.Pointer(&m.mem[0])) }

func (m *memory) member(i int) *member {
	return (*member)(unsafe.Pointer(&m.mem[memberAt+i*memberSize]))
}

// slot returns the slot of a block and the memory of its bytes.
func (m *memory) slot(block, slots int64) (*slot, []byte) {
	k := block % slots
	return (*slot)(unsafe.Pointer(&m.mem[slotAt+k*slotSize])), m.mem[dataAt+k*Block:][:Block:Block]
}

// create makes a memory for a version of a file, with at most limit bytes.
func create(v vfs.Version, limit int64) (*memory, error) {
	const what = "share memory with other loads"
	slots := min((v.Size+Block-1)/Block, mostSlots, limit/Block)
	if slots < min(leastSlots, (v.Size+Block-1)/Block) {
		return nil, errs.New(errs.Unsupported, what, units.Bytes(limit), "is too little memory")
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // Linux before 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, errs.Wrap(what, "", err)
	}
	if err = unix.Ftruncate(fd, dataAt+slots*Block); err == nil {
		// Nobody can make the memory smaller: an access could otherwise end a process.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	var m *memory
	if err == nil {
		m, err = mapped(fd, dataAt+slots*Block)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, errs.Wrap(what, "", err)
	}
	h := m.header()
	h.slots, h.version, h.made = slots, v, time.Now().UnixNano()
	h.magic.Store(magic)
	return m, nil
}

// open opens the memory that another load offers. It fails if the offer is not an exchange of the same user for this
// version of the file.
func open(o vfs.Offer, v vfs.Version) (*memory, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", o.PID, o.FD)
	fail := func(why string) (*memory, error) {
		return nil, errs.New(errs.Unsupported, "open the memory of another load", path, why)
	}
	// In another PID namespace the same number is another process, whose files must not be opened.
	if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, "/memfd:"+name+" ") {
		return fail(fmt.Sprintf("it leads to %q, not to an exchange (%v)", to, err))
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, errs.Wrap("open the memory of another load", path, err)
	}
	var st unix.Stat_t
	sealed, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	slots := (st.Size - dataAt) / Block
	if err != nil || sealed&seals != seals || slots < 1 || slots > mostSlots || st.Size != dataAt+slots*Block {
		_ = unix.Close(fd)
		return fail(fmt.Sprintf("it has %d bytes and seals %#x (%v)", st.Size, sealed, err))
	}
	if st.Uid != uint32(os.Geteuid()) { // root could open it, and would trust the content
		_ = unix.Close(fd)
		return fail(fmt.Sprintf("it belongs to user %d", st.Uid))
	}
	m, err := mapped(fd, st.Size)
	if err != nil {
		_ = unix.Close(fd)
		return nil, errs.Wrap("map the memory of another load", path, err)
	}
	if h := m.header(); h.magic.Load() != magic || h.slots != slots || h.version != v {
		m.close()
		return fail("it is for another version of the file or of this program")
	}
	return m, nil
}

// mapped maps size bytes of fd. The kernel uses huge pages only for memory at a multiple of their size.
func mapped(fd int, size int64) (*memory, error) {
	raw, err := unix.MmapPtr(-1, 0, nil, uintptr(size+Block), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	at := unsafe.Add(raw, -uintptr(raw)&(Block-1))
	if _, err = unix.MmapPtr(fd, 0, at, uintptr(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		_ = unix.MunmapPtr(raw, uintptr(size+Block))
		return nil, err
	}
	m := &memory{fd: fd, mem: unsafe.Slice((*byte)(at), size), raw: raw}
	_ = unix.Madvise(m.mem, unix.MADV_DONTFORK) // a child would keep the memory
	return m, nil
}

// enlarge makes a huge page of the memory of a slot, and reports whether the kernel did so. By default, kernels give
// shared memory small pages. Every process then takes 512 page faults for a block, and pinning takes longer.
func enlarge(mem []byte) bool {
	const collapse = 25 // MADV_COLLAPSE, Linux 6.1
	mem[0] = 0          // the kernel refuses memory without any page
	return unix.Madvise(mem, collapse) == nil
}

func (m *memory) close() {
	_ = unix.MunmapPtr(m.raw, uintptr(len(m.mem)+Block))
	_ = unix.Close(m.fd)
}
