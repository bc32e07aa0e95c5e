// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
	"github.com/nebulaio/nebulaio/internal/model"
	"github.com/nebulaio/nebulaio/internal/process/target"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// The GPU memory of a process that is suspended to a file is a .safetensors file with one tensor of bytes for each GPU,
// with checksums in FILE.crc64nvme. The metadata says which process it belongs to.
const (
	keyPID     = "nebulaio_pid"
	keyStarted = "nebulaio_started"
)

func regionName(i int) string { return fmt.Sprintf("region-%02d", i) }

// saveRegions writes mapped GPU memory to a file, durably and with checksums.
func saveRegions(ctx context.Context, sys *boot.System, path string, p *target.Process,
	regions []device.MappedRegion) error {
	var all []model.Held
	o := model.SaveOptions{Checksums: true, Streams: map[device.Device]uint64{}, Metadata: map[string]string{
		keyPID: strconv.Itoa(p.PID), keyStarted: strconv.FormatUint(p.Started, 10)}}
	for i, region := range regions {
		dev, err := sys.Devices.Open(ctx, fmt.Sprintf("cuda:%d", region.GPU))
		if err != nil {
			return err
		}
		o.Streams[dev] = region.Stream
		all = append(all, model.Held{Name: regionName(i), DType: format.U8, Shape: []int64{region.Size}, Device: dev,
			Ptr: region.Ptr, Size: region.Size})
	}
	job, err := model.StartSave(ctx, sys.Engine, path, all, o)
	if err != nil {
		return err
	}
	return job.Err()
}

// storedRegions is the file of a suspended process, with its checksums.
type storedRegions struct {
	path    string
	tensors []format.Tensor
	sums    *checksum.Sums
}

// openRegions reads the header and the checksums of a file of saveRegions, and checks that it belongs to the process.
func openRegions(path string, p *target.Process) (*storedRegions, error) {
	f, err := safetensors.ParseFile(path, safetensors.Strict)
	if err != nil {
		return nil, err
	}
	if pid := f.Metadata[keyPID]; pid != strconv.Itoa(p.PID) ||
		f.Metadata[keyStarted] != strconv.FormatUint(p.Started, 10) {
		return nil, errs.New(errs.Invalid, "resume process", p.Shown(), fmt.Sprintf(
			"%s has the GPU memory of another process, with the id %.20q", path, pid)).
			WithFix("give the file that was written when this process was suspended")
	}
	s := &storedRegions{path: path}
	for i := range f.Tensors {
		t := f.Tensors[i]
		n := len(s.tensors)
		if t.Name != regionName(n) || t.DType != format.U8 {
			return nil, errs.New(errs.Invalid, "resume process", p.Shown(), fmt.Sprintf(
				"%s has the tensor %.40q, expected %s", path, t.Name, regionName(n)))
		}
		s.tensors = append(s.tensors, t)
	}
	s.sums, err = checksum.Read(path, f.Size)
	return s, err
}

// load reads the file into mapped GPU memory, and compares the checksums.
func (s *storedRegions) load(ctx context.Context, sys *boot.System, regions []device.MappedRegion) error {
	if len(regions) != len(s.tensors) {
		return errs.New(errs.Invalid, "read GPU memory from", s.path, fmt.Sprintf(
			"the process has %d regions, and the file %d", len(regions), len(s.tensors)))
	}
	f, err := vfs.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close() // only read from
	for i, region := range regions {
		t := s.tensors[i]
		if t.Size != region.Size {
			return errs.New(errs.Invalid, "read GPU memory from", s.path, fmt.Sprintf(
				"region %d of the process has %d bytes, and that of the file %d", i, region.Size, t.Size))
		}
		dev, err := sys.Devices.Open(ctx, fmt.Sprintf("cuda:%d", region.GPU))
		if err != nil {
			return err
		}
		job, err := sys.Engine.Start(ctx, transfer.Request{Device: dev, Files: []*vfs.File{f},
			Segments: []transfer.Segment{{Off: t.Offset, Len: t.Size, Dst: region.Ptr}},
			Verify:   []*checksum.Sums{s.sums}, Stream: region.Stream, HasStream: true})
		if err != nil {
			return err
		}
		if err := job.Err(); err != nil {
			return err
		}
	}
	return nil
}

// checkpointTo moves the GPU memory of a locked process to a file. If the file cannot be written, the memory goes to a
// file in host memory and from there back to the GPUs, so that the process runs on.
func (r *run) checkpointTo(d Driver, p *target.Process, o SuspendOptions) error {
	wrap := func(err error) error { return errs.Wrap("suspend process", p.Shown(), err) }
	if err := vfs.CheckPlace(o.To); err != nil {
		return r.putBack(d, p, wrap(err))
	}
	var mapped device.MappedMemory
	err := r.step("map", "mapping the GPU memory of process "+p.Shown(), func() (err error) {
		mapped, err = d.CheckpointOut(p.PID)
		return err
	})
	if err != nil {
		return r.putBack(d, p, wrap(err))
	}
	err = r.step("checkpoint", "writing the GPU memory of process "+p.Shown()+" to "+o.To, func() error {
		return saveRegions(r.ctx, o.System, o.To, p, mapped.Regions())
	})
	if err != nil {
		return r.rescue(d, p, o, mapped, wrap(err))
	}
	if err := r.step("complete", "ending the suspension", mapped.Complete); err != nil {
		return r.lost(d, p, wrap(err), nil)
	}
	r.report.Storage = o.To
	return nil
}

// rescue puts a process back whose GPU memory could not be written to its file.
func (r *run) rescue(d Driver, p *target.Process, o SuspendOptions, mapped device.MappedMemory, cause error) error {
	// The interrupt that may be the cause must not stop the rescue.
	ctx := context.WithoutCancel(r.ctx)
	err := r.step("rescue", "moving the GPU memory of process "+p.Shown()+" back", func() error {
		dir, err := os.MkdirTemp("/dev/shm", "nebulaio-rescue-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) // host memory, which is needed elsewhere
		path := dir + "/memory.safetensors"
		if err := saveRegions(ctx, o.System, path, p, mapped.Regions()); err != nil {
			return errors.Join(err, mapped.Complete())
		}
		if err := mapped.Complete(); err != nil {
			return err
		}
		stored, err := openRegions(path, p)
		if err != nil {
			return err
		}
		back, err := d.RestoreIn(p.PID, nil)
		if err != nil {
			return err
		}
		return errors.Join(stored.load(ctx, o.System, back.Regions()), back.Complete())
	})
	if err != nil {
		return after(cause, "the process could not be put back, and its GPU memory is lost: "+errs.MessageOf(err),
			"end the process")
	}
	return r.putBack(d, p, cause)
}

// restoreFrom moves the GPU memory of a suspended process back from a file. The whole file is compared with its
// checksums on the way; a damaged file leaves the process suspended.
func (r *run) restoreFrom(d Driver, p *target.Process, o ResumeOptions) error {
	wrap := func(err error) error { return errs.Wrap("resume process", p.Shown(), err) }
	stored, err := openRegions(o.From, p)
	if err != nil {
		return wrap(err)
	}
	var mapped device.MappedMemory
	err = r.step("map", "mapping GPU memory for process "+p.Shown(), func() (err error) {
		mapped, err = d.RestoreIn(p.PID, o.Pairs)
		return err
	})
	if err != nil {
		return r.stillSuspended(d, p, wrap(err))
	}
	err = r.step("restore", "reading the GPU memory of process "+p.Shown()+" from "+o.From, func() error {
		return stored.load(r.ctx, o.System, mapped.Regions())
	})
	done := r.step("complete", "ending the resumption", mapped.Complete)
	if err == nil {
		err = done
		if err != nil {
			return r.lost(d, p, wrap(err), nil)
		}
		r.report.Storage = o.From
		return nil
	}
	if done != nil {
		return r.lost(d, p, wrap(err), done)
	}
	// The memory of the process is not whole: it must not run. The file still has the content.
	again, e := d.CheckpointOut(p.PID)
	if e == nil {
		e = again.Complete()
	}
	if e != nil {
		return r.lost(d, p, wrap(err), e)
	}
	return after(wrap(err), "the process is suspended as before", "")
}
