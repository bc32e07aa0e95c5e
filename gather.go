// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"fmt"
	"sync"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/gather"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// GatherSegment is a range of one file and its destination in device memory.
type GatherSegment struct {
	File   int   // index into the files of the gather
	Offset int64 // offset of the range in the file, in bytes
	Size   int64 // size of the range in the file, in bytes
	// Width and Stride, in bytes, select rows of the range. If Stride is not 0, only the first Width bytes of every
	// Stride bytes, counted from Offset, are wanted. The wanted bytes are packed without gaps at Ptr.
	Width, Stride int64
	Ptr           Ptr
	// Label is the name of the content in errors, such as the name of a tensor. Label may be empty.
	Label string
}

// GatherOptions choose the device, the route and the verification of a gather.
type GatherOptions struct {
	// Device is the device of all destinations: "auto" (the default), "host", "cuda" or "cuda:N".
	Device string
	// Route and Cache choose the route and the cache policy; empty means RouteAuto and CacheAuto.
	Route Route
	Cache CachePolicy
	// If Verify is set, the gather compares every block with a byte of a segment with its checksum. The checksums of a
	// local FILE are in FILE.crc64nvme. The checksums of an object come from the server's door, or from the object
	// KEY.crc64nvme. A wrong block fails the gather with kind Corrupt, and the error names the file and the labels. If
	// a file has no checksums, the gather fails with kind NotFound.
	Verify bool
	// Gap is the smallest number of unwanted bytes between two wanted ranges of a file for which the ranges are read
	// separately. Ranges with fewer unwanted bytes between them are covered by one read from storage. 0 means 64 KiB. A
	// smaller gap reads fewer bytes in more reads.
	Gap int64
	// Stream is a CUDA stream of the caller and is used if HasStream is set. Copies begin after the work that is
	// already queued on the stream.
	Stream    uint64
	HasStream bool
	// Client chooses the server of objects. All objects of a gather are on one server.
	Client ClientOptions
	// Progress, if not nil, is called several times a second from one goroutine, with the bytes delivered so far and
	// the total number of bytes.
	Progress func(done, total int64)
}

// GatherReport describes a gather.
type GatherReport struct {
	Op       string `json:"op"` // "gather"
	Segments int    `json:"segments"`
	// Via says how the bytes came: "file" if all files are local, else "door" or "http". Via is empty if no object was
	// opened.
	Via string `json:"via"`
	// OpenSeconds is the time until the first files were open. Report.Seconds does not include OpenSeconds.
	OpenSeconds float64 `json:"open_seconds"`
	Report
}

// GatherJob is a running gather; see System.StartGather.
type GatherJob struct {
	j        *gather.Job
	place    *dataPlace
	segments int
	done     chan struct{}
	err      error
	refused  []report.Refusal
}

// StartGather begins to read segments of files into memory of one device, and returns at once. The files are paths or
// URLs of objects ("s3://bucket/key"). Segments may have any order, and neighbouring segments are read together. A
// file without a segment is not opened. The caller must not use the destinations until the job has ended. StartGather
// itself fails for invalid arguments and devices; GatherJob.Wait returns all other errors.
func (s *System) StartGather(ctx context.Context, files []string, segments []GatherSegment,
	o GatherOptions) (*GatherJob, error) {
	if ctx.Err() != nil {
		return nil, cancelled(ctx, "gather", fmt.Sprintf("%d segments", len(segments)))
	}
	r := gather.Request{Files: files, Stream: o.Stream, HasStream: o.HasStream, Verify: o.Verify, Gap: o.Gap,
		Segments: make([]gather.Segment, len(segments))}
	for i, g := range segments {
		r.Segments[i] = gather.Segment{Label: g.Label, Segment: transfer.Segment{File: g.File, Off: g.Offset, Len: g.Size,
			Width: g.Width, Stride: g.Stride, Dst: device.Ptr(g.Ptr)}}
	}
	var err error
	if r.Route, err = report.ParseRoute(string(o.Route)); err != nil {
		return nil, err
	}
	if r.Cache, err = report.ParseCachePolicy(string(o.Cache)); err != nil {
		return nil, err
	}
	for _, name := range files {
		p, err := parseURL(name)
		if err == nil {
			err = p.object(name)
		}
		if err != nil {
			return nil, err
		}
	}
	if r.Device, err = s.sys.Devices.Open(ctx, o.Device); err != nil {
		return nil, err
	}
	if err := s.sys.Enter("gather", fmt.Sprintf("%d files", len(files))); err != nil {
		return nil, err
	}
	s.sys.Engine.Prepare(r.Device)
	job := &GatherJob{segments: len(segments), done: make(chan struct{})}
	if refusal := s.noGPU(r.Device, o.Device); refusal != nil {
		job.refused = append(job.refused, *refusal)
	}
	if job.place, err = newDataPlace(s, files, o.Client); err != nil {
		s.sys.Leave()
		return nil, err
	}
	r.Opener = gatherFiles{job.place, r.Device.Info().ID}
	if job.j, err = gather.Start(ctx, s.sys.Engine, r); err != nil {
		_ = job.place.Close() // nothing was opened
		s.sys.Leave()
		return nil, err
	}
	go func() {
		defer close(job.done)
		defer s.sys.Leave()
		job.err = job.j.Wait()
		job.refused = append(job.refused, job.place.refusals(ctx)...)
		r, _ := job.j.Report()
		job.place.count(&r)
		if err := job.place.Close(); job.err == nil {
			job.err = err
		}
	}()
	if o.Progress != nil {
		go watch(job, o.Progress)
	}
	return job, nil
}

// Gather reads segments of files into memory of one device; see System.StartGather. Gather returns a report even if
// the gather failed.
func (s *System) Gather(ctx context.Context, files []string, segments []GatherSegment,
	o GatherOptions) (GatherReport, error) {
	progress := o.Progress
	o.Progress = nil // Gather makes the last call of Progress before it returns
	job, err := s.StartGather(ctx, files, segments, o)
	if err != nil {
		return GatherReport{}, err
	}
	watch(job, progress)
	return job.Report(), job.Wait()
}

// Done returns a channel that is closed when the gather has ended and the caller may use the destinations.
func (g *GatherJob) Done() <-chan struct{} { return g.done }

// Wait blocks until the gather has ended and returns its error.
func (g *GatherJob) Wait() error {
	<-g.done
	return g.err
}

// Progress returns the number of bytes delivered so far, and the total number of bytes to deliver.
func (g *GatherJob) Progress() (done, total int64) { return g.j.Progress() }

// Report blocks until the gather has ended and returns its report.
func (g *GatherJob) Report() GatherReport {
	<-g.done
	r, opening := g.j.Report()
	r.Refusals = append(append([]report.Refusal{}, g.refused...), r.Refusals...)
	return GatherReport{Op: "gather", Segments: g.segments, Via: g.via(&r), OpenSeconds: opening.Seconds(), Report: r}
}

// via returns how the bytes came.
func (g *GatherJob) via(r *report.Report) string {
	switch {
	case g.place.client == nil:
		return "file"
	case r.Network != nil:
		return "http"
	case len(r.Files) > 0:
		return "door"
	}
	return ""
}

// gatherFiles opens the files and objects of a gather.
type gatherFiles struct {
	place  *dataPlace
	device string
}

// Open opens files and objects, with their checksums if verify is set.
func (g gatherFiles) Open(ctx context.Context, names []string, verify bool) ([]gather.Opened, []error) {
	opened, fails := g.place.openFor(ctx, g.device, names)
	out := make([]gather.Opened, len(names))
	turns := make(chan struct{}, sumsAtOnce)
	var all sync.WaitGroup
	for i, o := range opened {
		if fails[i] != nil {
			continue
		}
		out[i] = gather.Opened{File: o.File}
		if !verify {
			continue
		}
		if out[i].Sums = o.Sums; o.Sums != nil {
			continue
		}
		turns <- struct{}{}
		all.Go(func() {
			out[i].Sums, fails[i] = g.sums(ctx, names[i], o.File)
			<-turns
		})
	}
	all.Wait()
	return out, fails
}

// sumsAtOnce is the number of checksum files that are read at the same time, which hides the latency of a server.
const sumsAtOnce = 16

// sums reads the checksums of an open file or of an object that did not come through the door.
func (g gatherFiles) sums(ctx context.Context, name string, f *vfs.File) (*checksum.Sums, error) {
	if g.place.isObject(name) {
		t, key := g.place.tree(name, g.device)
		return t.Sums(ctx, key, f)
	}
	return checksum.ReadFor(name, f.Size(), checksum.ID(f.Identity()))
}
