// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/vfs"
)

// house is a file and the loads that want it.
type house struct {
	t    *testing.T
	path string
	v    vfs.Version
	// The waits are long unless a test shortens them: on a busy machine, a load may get no processor for seconds.
	patience, longestRead time.Duration
}

// newHouse makes a file of so many blocks, the last one not full. The file is empty of data: the tests fill blocks
// themselves.
func newHouse(t *testing.T, blocks int64) *house {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model")
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(f.Truncate(max(blocks*Block-12345, 16<<20)), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, path: path, patience: time.Hour, longestRead: time.Hour}
	h.v = vfs.VersionOf(h.file())
	return h
}

func (h *house) file() *vfs.File {
	h.t.Helper()
	f, err := vfs.Open(h.path)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = f.Close() })
	return f
}

func (h *house) interest() *vfs.Interest {
	h.t.Helper()
	in, why := vfs.NewInterest(h.file())
	if in == nil {
		h.t.Skipf("no agreement on this file system: %v", why)
	}
	h.t.Cleanup(in.Close)
	return in
}

// join adds a load that shares slots.
func (h *house) join(slots int64) *Exchange {
	h.t.Helper()
	x, err := Join(h.interest(), h.v, slots*Block)
	if err != nil {
		h.t.Fatal(err)
	}
	x.patience, x.longestRead = h.patience, h.longestRead
	return x
}

// write makes the content of a block: 64 KiB are enough to see a mixture.
func write(p []byte, block int64) {
	b := byte(block*7 + 1)
	for i := range p[:64<<10] {
		p[i] = b
	}
}

func holds(p []byte, block int64) bool {
	return bytes.Count(p, []byte{byte(block*7 + 1)}) == len(p)
}

func never() bool { return false }

// get brings a block, and fails the test if it is not where it is expected.
func (h *house) get(x *Exchange, block int64, want Found) {
	h.t.Helper()
	found, err := x.Get(block, func(p []byte) error { write(p, block); return nil }, never)
	if err != nil || found != want {
		h.t.Fatalf("block %d: %v %v, want %v", block, found, err, want)
	}
}

// TestLoadsShareBlocks lets four loads go through a file with more blocks than slots, at random speeds. Each block is
// read once, and each load gets its bytes.
func TestLoadsShareBlocks(t *testing.T) {
	const blocks, slots, window = 300, leastSlots, 4
	h := newHouse(t, blocks)
	var reads [blocks]atomic.Int32
	var all []*Exchange
	for range 4 {
		all = append(all, h.join(slots))
	}
	var run sync.WaitGroup
	for k, x := range all {
		if x.slots != slots {
			t.Fatalf("load %d has %d slots, want %d", k, x.slots, slots)
		}
		run.Go(func() {
			defer x.Leave()
			rng := rand.New(rand.NewPCG(1, uint64(k)))
			buf := make([]byte, 64<<10)
			for w := int64(0); w < blocks; w += window {
				for _, i := range rng.Perm(window) {
					block := w + int64(i)
					_, err := x.Get(block, func(p []byte) error {
						reads[block].Add(1)
						clear(p[:64<<10]) // a load that copies too early sees it
						write(p, block)
						return nil
					}, never)
					if err != nil || !x.Has(block) || !x.Copy(buf, block*Block) || !holds(buf, block) {
						t.Errorf("load %d, block %d: %v, or other bytes", k, block, err)
						return
					}
				}
				x.Done(w + window)
			}
		})
	}
	run.Wait()
	for b := range reads {
		if n := reads[b].Load(); n != 1 {
			t.Errorf("block %d was read %d times", b, n)
		}
	}
}

// TestALoadThatStandsIsWaitedForOnce lets one load go on while another does not. The fast one finds no room and goes
// another way; the slow one finds its blocks.
func TestALoadThatStandsIsWaitedForOnce(t *testing.T) {
	const slots = leastSlots
	h := newHouse(t, 4*slots)
	h.patience = patience
	fast, slow := h.join(slots), h.join(slots)
	defer fast.Leave()
	defer slow.Leave()
	for b := range int64(slots) {
		h.get(fast, b, Filled)
		fast.Done(b + 1)
	}
	began := time.Now()
	for b := int64(slots); b < 3*slots; b++ {
		h.get(fast, b, Elsewhere)
	}
	// A wait for each block would take longer, also on a busy machine.
	if d := time.Since(began); d < patience || d > slots*patience {
		t.Errorf("the fast load took %v, want one wait of %v", d, patience)
	}
	buf := make([]byte, 64<<10)
	for b := range int64(slots) {
		h.get(slow, b, Here)
		if !slow.Copy(buf, b*Block) || !holds(buf, b) {
			t.Fatalf("the slow load did not get block %d", b)
		}
	}
	slow.Done(slots)
	h.get(fast, 3*slots, Filled)
	h.get(slow, 3*slots, Here)
	if slow.Copy(buf, 0) {
		t.Error("a block was copied whose slot was reused")
	}
	if found, err := slow.Get(0, func([]byte) error { t.Error("it was filled"); return nil }, never); found != Elsewhere ||
		err != nil {
		t.Errorf("a block was found %v %v whose slot was reused", found, err)
	}
}

// TestAReadThatHangsIsWaitedForOnce lets a load hang in its read. Others wait once, and find its blocks again when it
// goes on.
func TestAReadThatHangsIsWaitedForOnce(t *testing.T) {
	const blocks = 8
	h := newHouse(t, leastSlots)
	h.longestRead = longestRead
	a, b := h.join(leastSlots), h.join(leastSlots)
	defer a.Leave()
	defer b.Leave()
	var run sync.WaitGroup
	end := make(chan struct{})
	for block := range int64(blocks) {
		begun := make(chan struct{})
		run.Go(func() {
			_, _ = a.Get(block, func(p []byte) error { close(begun); <-end; write(p, block); return nil }, never)
		})
		<-begun
	}
	began := time.Now()
	for block := range int64(blocks) {
		h.get(b, block, Elsewhere)
	}
	if d := time.Since(began); d < longestRead || d > (blocks-1)*longestRead {
		t.Errorf("the other load waited for %v, want one wait of %v", d, longestRead)
	}
	close(end)
	run.Wait()
	for block := range int64(blocks) {
		h.get(b, block, Here)
	}
	if a.member(a.me).stuck.Load() != 0 {
		t.Error("a load that goes on still counts as stuck")
	}
}

// TestFailedReadsAreRepeated fails the read of a block: the next load reads it.
func TestFailedReadsAreRepeated(t *testing.T) {
	h := newHouse(t, leastSlots)
	a, b := h.join(leastSlots), h.join(leastSlots)
	defer a.Leave()
	defer b.Leave()
	broken := errors.New("broken disk")
	if _, err := a.Get(3, func([]byte) error { return broken }, never); !errors.Is(err, broken) {
		t.Errorf("the read failed with %v", err)
	}
	if found, err := b.Get(3, nil, never); found != Elsewhere || err != nil {
		t.Errorf("a block that nobody has read was found %v %v", found, err)
	}
	h.get(b, 3, Filled)
	h.get(a, 3, Here)
}

// dead returns the id of a process that has ended.
func dead(t *testing.T) int {
	t.Helper()
	c := exec.Command("true")
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	return c.Process.Pid
}

// TestADeadProcessIsReplaced leaves a block half filled and a place taken by a process that has ended. Another load
// takes both over.
func TestADeadProcessIsReplaced(t *testing.T) {
	h := newHouse(t, 2*leastSlots)
	x := h.join(leastSlots)
	defer x.Leave()
	const gone = 5
	x.member(gone).id.Store(uint64(dead(t)) | 1<<32)
	s, _ := x.slot(1, x.slots)
	s.word.Store(pack(1, gone, filling))
	x.Done(1)
	h.get(x, 1, Filled)
	if x.member(gone).id.Load() != 0 {
		t.Error("the place of the dead process is still taken")
	}
	// Nobody waits for a dead process that was behind, either.
	x.member(gone).id.Store(uint64(dead(t)) | 1<<32)
	x.Done(2)
	h.get(x, 1+leastSlots, Filled)
	if p := x.member(gone); p.id.Load() != 0 || p.ignored.Load() != 0 {
		t.Error("a dead process was waited for")
	}
	// A new load in the place of a dead one frees what that was filling.
	x.member(1).id.Store(0)
	s, _ = x.slot(7, x.slots)
	s.word.Store(pack(7, 1, filling))
	y := h.join(leastSlots)
	defer y.Leave()
	h.get(y, 7, Filled)
}

// TestGetStops ends a wait early because the load has failed.
func TestGetStops(t *testing.T) {
	h := newHouse(t, leastSlots)
	a, b := h.join(leastSlots), h.join(leastSlots)
	defer a.Leave()
	defer b.Leave()
	begun, end := make(chan struct{}), make(chan struct{})
	var run sync.WaitGroup
	defer run.Wait()
	run.Go(func() {
		_, _ = a.Get(2, func(p []byte) error { close(begun); <-end; write(p, 2); return nil }, never)
	})
	<-begun
	if found, err := b.Get(2, nil, func() bool { return true }); found != Elsewhere || err != nil {
		t.Errorf("found %v %v, want nothing", found, err)
	}
	close(end)
	h.get(b, 2, Here)
}

// TestVersionsAreApart joins loads of two versions of a file, which share nothing.
func TestVersionsAreApart(t *testing.T) {
	h := newHouse(t, leastSlots)
	a := h.join(leastSlots)
	defer a.Leave()
	h.v.MTime++
	b := h.join(leastSlots)
	defer b.Leave()
	h.get(a, 0, Filled)
	if b.Has(0) || b.Covers([]int{os.Getpid()}) {
		t.Error("loads of two versions share memory")
	}
	if a.Covers([]int{os.Getpid()}) || !a.Covers(nil) {
		t.Error("a load alone in its memory is not alone")
	}
}

// TestTwoMemoriesBecomeOne makes a memory for each of two loads, as two loads do that begin at the same moment. Both
// then use the older one.
func TestTwoMemoriesBecomeOne(t *testing.T) {
	h := newHouse(t, leastSlots)
	var all []*Exchange
	for range 2 {
		in := h.interest()
		m, err := create(h.v, leastSlots*Block)
		if err != nil {
			t.Fatal(err)
		}
		x, err := enter(in, m)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Leave()
		all = append(all, x)
	}
	old, young := all[0], all[1]
	young.header().made = old.header().made + 1
	if old.Older(nil) != nil {
		t.Error("the older memory was left")
	}
	now := young.Older(nil)
	if now == nil {
		t.Fatal("the younger memory was kept")
	}
	defer now.Leave()
	h.get(old, 1, Filled)
	h.get(now, 1, Here)
	if third := h.join(leastSlots); !third.Has(1) {
		t.Error("a third load joined the younger memory")
	} else {
		third.Leave()
	}
	if young.Older(young.in.Offers()) != nil {
		t.Error("an offer that was looked at was opened again")
	}
}

// TestWrongOffersAreRefused offers descriptors that are no exchange. They are not used.
func TestWrongOffersAreRefused(t *testing.T) {
	h := newHouse(t, leastSlots)
	memfd := func(name string, size int64, seal int) int {
		fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.Ftruncate(fd, size); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seal); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	file, err := os.Open(h.path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const right = dataAt + leastSlots*Block
	for what, fd := range map[string]int{
		"a file": int(file.Fd()), "other memory": memfd("other", right, seals), "no descriptor": 60_000,
		"memory that can shrink":     memfd(name, right, unix.F_SEAL_GROW),
		"memory of a wrong size":     memfd(name, right+1, seals),
		"too much memory":            memfd(name, dataAt+(mostSlots+1)*Block, seals),
		"memory without content":     memfd(name, right, seals),
		"memory with nothing in it":  memfd(name, 0, seals),
		"memory without any of data": memfd(name, dataAt, seals),
	} {
		in := h.interest()
		if err := in.Offer(fd); err != nil {
			t.Fatal(err)
		}
		if m, err := open(vfs.Offer{PID: os.Getpid(), FD: fd}, h.v); err == nil {
			m.close()
			t.Errorf("%s was opened", what)
		}
		x := h.join(leastSlots)
		h.get(x, 0, Filled)
		x.Leave()
		in.Close()
	}
	if os.Geteuid() == 0 {
		x := h.join(leastSlots)
		defer x.Leave()
		if err := unix.Fchown(x.fd, 1, 1); err != nil {
			t.Fatal(err)
		}
		if m, err := open(vfs.Offer{PID: os.Getpid(), FD: x.fd}, h.v); err == nil {
			m.close()
			t.Error("memory of another user was opened")
		}
	}
	if _, err := create(h.v, (leastSlots-1)*Block); err == nil {
		t.Error("a memory with too few slots was made")
	}
}

// TestPlacesAreTaken joins more loads than there are places.
func TestPlacesAreTaken(t *testing.T) {
	h := newHouse(t, leastSlots)
	x := h.join(leastSlots)
	defer x.Leave()
	for i := range members {
		x.member(i).id.CompareAndSwap(0, uint64(os.Getpid())|9<<32)
	}
	if y, err := Join(h.interest(), h.v, leastSlots*Block); err == nil {
		y.Leave()
		t.Error("one load too many has joined")
	}
}

// TestLentBlocks lends a block, and finds out when the slot got another one.
func TestLentBlocks(t *testing.T) {
	h := newHouse(t, 2*leastSlots)
	x, y := h.join(leastSlots), h.join(leastSlots)
	defer y.Leave()
	if _, ok := x.Lend(0, 1); ok {
		t.Error("a block was lent that nobody has read")
	}
	h.get(x, 1, Filled)
	h.get(x, 2, Filled)
	const off, n = 2*Block + 100, 5000
	lent, ok := x.Lend(off, n)
	if !ok || !lent.Valid() || !holds(lent.Mem, 2) || len(lent.Mem) != n || cap(lent.Mem) != n {
		t.Fatalf("%d bytes were lent: %v", len(lent.Mem), ok)
	}
	if at, again := x.Place(2); again || &x.Memory()[at+100] != &lent.Mem[0] {
		t.Errorf("block 2 is at %d, used before: %v", at, again)
	}
	if at, again := x.Place(2 + leastSlots); !again || at != 2*Block || len(x.Memory()) != leastSlots*Block {
		t.Errorf("block %d is at %d, used before: %v", 2+leastSlots, at, again)
	}
	free := x.Retire() // a load that was taken for dead still has the memory
	y.Done(2 + leastSlots)
	h.get(y, 2+leastSlots, Filled)
	if lent.Valid() {
		t.Error("a block that was replaced is still valid")
	}
	free()
}

// hugeBytes returns how many bytes of a mapping are in huge pages of shared memory.
func hugeBytes(t *testing.T, mem []byte) (n int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	at := fmt.Sprintf("%x-", uintptr(unsafe.Pointer(&mem[0])))
	inside := false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, at) {
			inside = true
		}
		if inside && strings.HasPrefix(line, "ShmemPmdMapped:") {
			if _, err := fmt.Sscanf(line, "ShmemPmdMapped: %d kB", &n); err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("the mapping is not in smaps")
	return 0
}

// TestASlotIsAHugePage: where the kernel has huge pages for shared memory, a slot is one of them from its first use,
// also for another load. If the kernel refuses one, the load asks for no more.
func TestASlotIsAHugePage(t *testing.T) {
	const setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
	if text, err := os.ReadFile(setting); err != nil || !strings.Contains(string(text), "[never]") &&
		!strings.Contains(string(text), "[advise]") {
		t.Skipf("the kernel gives huge pages unasked, or none: %s: %q, %v", setting, text, err)
	}
	h := newHouse(t, leastSlots)
	a, b := h.join(leastSlots), h.join(leastSlots)
	defer a.Leave()
	defer b.Leave()
	for _, x := range []*Exchange{a, b} {
		if at := uintptr(unsafe.Pointer(&x.Memory()[0])); at%Block != 0 {
			t.Errorf("the slots begin at %#x, expected a multiple of %d", at, Block)
		}
	}
	h.get(a, 0, Filled)
	h.get(b, 0, Here)
	p := make([]byte, 64<<10)
	if !b.Copy(p, 0) || !holds(p, 0) {
		t.Error("the block has other bytes")
	}
	if a.small.Load() {
		t.Skip("the kernel has no huge page for shared memory at hand")
	}
	for _, x := range []*Exchange{a, b} {
		if n := hugeBytes(t, x.mem); n != Block {
			t.Errorf("%d bytes are in huge pages, expected %d", n, Block)
		}
	}
	h.get(a, 1, Filled)
	b.small.Store(true)
	h.get(b, 2, Filled)
	if n := hugeBytes(t, b.mem); n > 2*Block {
		t.Errorf("%d bytes are in huge pages after a refusal", n)
	}
}
