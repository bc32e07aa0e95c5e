// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"fmt"
	"slices"
	"time"

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

// leastOnDevice is the smallest chunk that auto leaves to the device: to sum less
// takes the CPU no longer than to start a kernel and to learn of its end.
const leastOnDevice = 256 * units.KiB

// verifier is a load's side of verification. A chunk is summed by the device that it was copied to, or else by the
// worker that read it, while it is hot in that core's cache and before it is sent.
type verifier struct {
	proof *verify.Proof // nil: nothing is verified
	req   *Request
	port  *port
	ready *readiness
	tally *tally.Tally
	on    VerifyOn
	sums  bool // the device may sum what is verified
}

// newProof checks that the sums fit the request, and returns nil where it has none.
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

// check sums data, the bytes of c, and judges each block that it completes.
func (v *verifier) check(c plan.Chunk, data []byte) error {
	defer v.tally.Verified(int64(len(data)), time.Now())
	return v.proof.Check(c.File, c.Off, data)
}

// Right implements verify.Judge.
func (v *verifier) Right(b verify.Block) { v.ready.right(b) }

// Wrong implements verify.Judge.
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

// errRemoteDiffers is the error for content that is not what its server says.
func errRemoteDiffers(path string, off, n int64, got, want uint64, on, held string) error {
	msg := fmt.Sprintf("bytes %d to %d differ from the checksum that the server keeps: theirs is %016x, expected %016x",
		off, off+n, got, want) + summedOn(on)
	if held != "" {
		msg += "; they hold " + held
	}
	return errs.New(errs.Corrupt, "verify", path, msg).
		WithFix("read it again; if it differs again, the object is damaged on the server: store it anew from a good copy")
}

// summedOn is the word in an error that a device looked at what it had got.
func summedOn(on string) string {
	if on == "" {
		return ""
	}
	return ", summed on " + on + " where it had arrived"
}

// ask makes the device ready to sum what the load verifies, total bytes of it.
func (v *verifier) ask(total int64) {
	if v.proof != nil && v.port.mapper == nil && (v.on == VerifyDevice || v.on == VerifyAuto &&
		total >= leastOnDevice) {
		v.port.sums.ask(v.port.dev, v.port.queue)
		v.sums = true
	}
}

// need fails where the device was named as the place and cannot sum.
func (v *verifier) need() error {
	if !v.sums || v.on != VerifyDevice || v.port.dev.Info().Kind == device.Host {
		return nil
	}
	v.port.sums.wait()
	return errs.Wrap("verify on", v.port.dev.Info().ID, v.port.sums.refused())
}

// sumFor is the slot's sum for a chunk that is summed on the device after its
// copy; nil where the CPU sums it before.
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

// start queues the summing of a chunk behind mark m, that of its copy.
func (v *verifier) start(sum device.Sum, m device.Mark, c plan.Chunk) error {
	if sum == nil {
		return nil
	}
	first, size := v.proof.Tiles(c.File, c.Off)
	return sum.Start(m, c.Dst, c.Len, first, size)
}

// judge takes what the device made of a chunk.
func (v *verifier) judge(c plan.Chunk, tiles []uint64) error {
	defer v.tally.VerifiedOnDevice(c.Len, time.Now())
	return v.proof.CheckTiles(c.File, c.Off, c.Len, tiles, v.port.dev.Info().ID)
}

// worksInPlace reports whether the device will sum what it gets of a file past
// staging; it waits until that is known.
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

// proveInPlace sums a chunk that came past staging, where it is, and waits. No chunk is larger than room.
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

// describe tells what was verified and where, and why not on the device.
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
