// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"fmt"
	"slices"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/staging"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/transfer/verify"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// leastOnDevice is the size in bytes of the smallest chunk that VerifyAuto sums on the device. For less, the CPU is
// as fast as starting a kernel and waiting for it.
const leastOnDevice = 256 * units.KiB

// verifier verifies the chunks of a load. A chunk is summed by the device after the copy, or by the worker that read
// it, while it is in the core's cache and before the copy.
type verifier struct {
	proof *verify.Proof // nil if nothing is verified
	req   *Request
	port  *port
	ready *readiness
	tally *tally.Tally
	on    VerifyOn
	sums  bool // the device may compute the checksums
}

// newProof checks that the checksums fit the request. It returns nil if the request has no checksums.
func newProof(r *Request, join *checksum.Joiner, judge verify.Judge) (*verify.Proof, error) {
	if !slices.ContainsFunc(r.Verify, func(s *checksum.Sums) bool { return s != nil }) {
		return nil, nil
	}
	if len(r.Verify) != len(r.Files) {
		return nil, errs.New(errs.Invalid, "start transfer", "",
			fmt.Sprintf("sums of %d files given, expected %d, one per file", len(r.Verify), len(r.Files)))
	}
	files := make([]verify.File, len(r.Files))
	for i, f := range r.Files {
		files[i] = verify.File{Path: f.Path(), Size: f.Size(), Sums: r.Verify[i]}
	}
	loads := func(yield func(Extent) bool) {
		for s := range r.runs() {
			if !yield(Extent{File: s.File, Off: s.Off, Len: s.Len}) {
				return
			}
		}
	}
	return verify.NewProof(files, loads, r.Also, join, judge)
}

// covers reports whether every byte of a file's chunks is summed.
func (v *verifier) covers(file int) bool { return v.proof.Verifies(file) }

// check sums data, the bytes of c, and compares each block that is now complete.
func (v *verifier) check(c plan.Chunk, data []byte) error {
	defer v.tally.Verified(int64(len(data)), v.tally.Begin(tally.StageVerify))
	return v.proof.Check(c.File, c.Off, data)
}

// Right implements verify.Judge: it records that the block matched, so that parts of the destination with bytes of the
// block can become ready.
func (v *verifier) Right(b verify.Block) { v.ready.right(b) }

// Wrong implements verify.Judge: it returns the error that describes the damaged block.
func (v *verifier) Wrong(b verify.Block, got uint64, on string) error {
	f, s := v.req.Files[b.File], v.req.Verify[b.File]
	off, n := s.Extent(b.Index)
	held := ""
	if v.req.Holds != nil {
		held = v.req.Holds(b.File, off, n)
	}
	if f.Remote() != nil || f.Passed() {
		return errRemoteDiffers(f.Path(), off, n, got, s.Blocks[b.Index], on, held)
	}
	msg := fmt.Sprintf("block %d, bytes %d to %d, differs from %s: its checksum is %016x, expected %016x",
		b.Index, off, off+n, checksum.Path(f.Path()), got, s.Blocks[b.Index]) + summedOn(on)
	if held != "" {
		msg += "; it holds " + held
	}
	return errs.New(errs.Corrupt, "verify", f.Path(), msg).
		WithFix("get the file again from a good copy; if it was changed on purpose: " + checksum.Remedy(f.Path()))
}

// errRemoteDiffers returns the error for content that differs from the checksums of its server.
func errRemoteDiffers(path string, off, n int64, got, want uint64, on, held string) error {
	msg := fmt.Sprintf("bytes %d to %d differ from the checksum that the server keeps: theirs is %016x, expected %016x",
		off, off+n, got, want) + summedOn(on)
	if held != "" {
		msg += "; they hold " + held
	}
	return errs.New(errs.Corrupt, "verify", path, msg).
		WithFix("read it again; if it differs again, the object is damaged on the server: store it anew from a good copy")
}

// summedOn returns the words of an error for a checksum that a device computed, or "".
func summedOn(on string) string {
	if on == "" {
		return ""
	}
	return ", summed on " + on + " where it had arrived"
}

// ask prepares the device to compute checksums, if a load of total bytes is worth it.
func (v *verifier) ask(total int64) {
	if v.proof != nil && v.port.mapper == nil && (v.on == VerifyDevice || v.on == VerifyAuto &&
		total >= leastOnDevice) {
		v.port.sums.ask(v.port.dev, v.port.queue)
		v.sums = true
	}
}

// need returns an error if VerifyDevice was chosen and the device cannot compute checksums.
func (v *verifier) need() error {
	if !v.sums || v.on != VerifyDevice || v.port.dev.Info().Kind == device.Host {
		return nil
	}
	v.port.sums.wait()
	return errs.Wrap("verify on", v.port.dev.Info().ID, v.port.sums.refused())
}

// sumFor returns the slot's checksum object if the device sums the chunk after the copy, or nil if the CPU sums it
// before.
func (v *verifier) sumFor(c plan.Chunk, s *staging.Slot) device.Sum {
	if !v.sums || s == nil || c.Extra || c.Weave != nil || c.Summed || !v.covers(c.File) || !v.port.sums.able.Load() ||
		v.on == VerifyAuto && c.Len < leastOnDevice || !v.proof.Tileable(c.File) {
		return nil
	}
	sum, err := s.SumFor(v.port.queue)
	if err != nil {
		v.port.sums.refuse(err)
		return nil
	}
	return sum
}

// start queues the checksum of a chunk on the device, after the mark m of its copy.
func (v *verifier) start(sum device.Sum, m device.Mark, c plan.Chunk) error {
	if sum == nil {
		return nil
	}
	x := v.describeSum(sum, c)
	return sum.Start(m, x.Ptr, x.N, x.First, x.Size)
}

// describeSum returns how the checksum of a chunk starts on the device; nil as sum means none.
func (v *verifier) describeSum(sum device.Sum, c plan.Chunk) device.SumStart {
	if sum == nil {
		return device.SumStart{}
	}
	first, size := v.proof.Tiles(c.File, c.Off)
	return device.SumStart{Sum: sum, Ptr: c.Dst, N: c.Len, First: first, Size: size}
}

// judge compares the checksums that the device computed for a chunk.
func (v *verifier) judge(c plan.Chunk, tiles []uint64) error {
	defer v.tally.VerifiedOnDevice(c.Len, v.tally.Begin(tally.StageVerify))
	return v.proof.CheckTiles(c.File, c.Off, c.Len, tiles, v.port.dev.Info().ID)
}

// worksInPlace reports whether the device sums bytes of a file that reach it without staging. It waits until this is
// known.
func (v *verifier) worksInPlace(file int) bool {
	if !v.covers(file) {
		return true
	}
	if !v.sums || !v.proof.Tileable(file) {
		return false
	}
	v.port.sums.wait()
	return v.port.sums.able.Load()
}

// proveInPlace sums a chunk in device memory that came without staging, and waits for the result. No chunk is larger
// than room.
func (v *verifier) proveInPlace(c plan.Chunk, room int64) error {
	if !v.covers(c.File) {
		return nil
	}
	s, err := v.port.sums.take(v.port.queue, room)
	if err == nil {
		defer v.port.sums.keep(s)
		if err = v.start(s.Sum, s.mark, c); err == nil {
			err = s.Wait()
		}
	}
	if err != nil {
		return errs.Wrap(fmt.Sprintf("verify %d bytes from offset %d of", c.Len, c.Off), v.req.Files[c.File].Path(),
			err)
	}
	return v.judge(c, s.Tiles())
}

// describe adds the verified bytes, the processor, and the reason if the device did not compute checksums.
func (v *verifier) describe(f *facts) {
	if v.proof == nil {
		return
	}
	s := &f.sums
	r := &report.Verification{Algorithm: "crc64nvme", Files: v.proof.Files(), Blocks: v.proof.Blocks(),
		Bytes: s.Verify.Bytes, Extra: s.Extra.Bytes, Busy: s.Verify.Busy.Seconds(), DeviceBytes: s.OnDevice}
	r.Where = r.Place()
	f.verify = r
	id := v.port.dev.Info().ID
	if err := v.port.sums.refused(); err != nil && v.sums && v.port.dev.Info().Kind != device.Host {
		f.refuse("verification on the device", id, plainly(err), errs.FixOf(err))
	}
	switch {
	case r.Where == "both":
		f.closing = append(f.closing,
			fmt.Sprintf("%s were summed on %s where they had arrived, %s by the CPU: pieces below %s, what was packed or not "+
				"wanted itself, and what came before the device was ready to sum",
				units.Bytes(r.DeviceBytes), id, units.Bytes(r.Bytes-r.DeviceBytes), units.Bytes(leastOnDevice)))
	case r.Where == "host" && v.port.mapper != nil:
		f.closing = append(f.closing,
			"verification needs every byte in the CPU's reach: all were read into place in host memory and summed there")
	case r.Where == "host":
		f.closing = append(f.closing,
			"verification needs every byte in the CPU's reach: all were staged in host memory and summed there")
	}
}
