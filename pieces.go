// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

// Piece is a range of memory that a write puts into a file.
type Piece struct {
	Ptr  Ptr
	Size int64 // in bytes; may be 0
	// Device is the device of the memory at Ptr: "host", "cuda" or "cuda:N". Pieces of one file may be on several
	// devices.
	Device string
	// Bytes, if not nil, is the content in host memory; Ptr, Size and Device are then ignored.
	Bytes []byte
}

// WriteOptions choose how a write of pieces makes a file. The zero value of WriteOptions writes a file with checksums.
type WriteOptions struct {
	// NoChecksums makes the write make no checksum file FILE.crc64nvme, and remove an old one. For an object,
	// NoChecksums makes the write make no object KEY.crc64nvme; an old object KEY.crc64nvme stays, and a verified read
	// over HTTP then fails.
	NoChecksums bool
	// Route is RouteAuto (the default: O_DIRECT if the file system allows it), RouteDirect or RouteBuffered.
	Route Route
	// Streams holds the caller's CUDA streams by device, such as "cuda:0". The write reads the pieces of a device after
	// the work that is already queued on the device's stream. If a device has no entry in Streams, the write reads the
	// pieces of this device at once.
	Streams map[string]uint64
	// Client chooses the server for a write to a bucket.
	Client ClientOptions
	// Progress, if not nil, is called several times a second from one goroutine, with the bytes written so far and the
	// total number of bytes.
	Progress func(done, total int64)
}

// WriteReport describes a write of pieces.
type WriteReport struct {
	Path   string `json:"path"`
	Op     string `json:"op"` // "write"
	Pieces int    `json:"pieces"`
	// CRC64NVME is the CRC-64/NVME checksum of the whole file, as 16 hexadecimal digits. CRC64NVME is empty if the
	// write failed.
	CRC64NVME string `json:"crc64nvme"`
	Via       string `json:"via"` // how the bytes went: "file", or for an object "door" or "http"
	// ETag and Version are those of an object; a file has none.
	ETag    string `json:"etag,omitempty"`
	Version string `json:"version,omitempty"`
	// OpenSeconds is the time until the write could begin, and CommitSeconds the time from the last byte until an
	// object was durable. Report.Seconds includes neither of the two.
	OpenSeconds   float64 `json:"open_seconds"`
	CommitSeconds float64 `json:"commit_seconds,omitempty"`
	Report
}

// WriteJob is a running write of pieces; see System.StartWritePieces.
type WriteJob struct {
	t      pieceWriter
	path   string
	pieces int
	open   time.Duration
}

// pieceWriter is the work behind a WriteJob.
type pieceWriter interface {
	saver
	// Sums blocks until the write has ended and returns its checksums, or nil if the write failed.
	Sums() *checksum.Sums
	// Describe adds what only this kind of write knows to the report.
	describe(r *WriteReport)
}

// fileWrite is a write of pieces to a file.
type fileWrite struct{ *transfer.Save }

func (fileWrite) describe(r *WriteReport) { r.Via = "file" }

// StartWritePieces begins to write pieces of memory, one after the other, to a file or an object ("s3://bucket/key")
// and returns at once. After a successful write the file is complete and durable at its path, with FILE.crc64nvme. An
// object is followed by the object KEY.crc64nvme. After a failed write an old file is unchanged. The pieces must not
// change until the job has ended.
func (s *System) StartWritePieces(ctx context.Context, path string, pieces []Piece, o WriteOptions) (*WriteJob, error) {
	if ctx.Err() != nil {
		return nil, cancelled(ctx, "write", path)
	}
	began := time.Now()
	route, err := report.ParseRoute(string(o.Route))
	if err != nil {
		return nil, err
	}
	devices := &openDevices{sys: s, op: "write", path: path}
	sources, err := sourcesOf(ctx, devices, pieces)
	if err != nil {
		return nil, err
	}
	streams, err := devices.streams(ctx, o.Streams)
	if err != nil {
		return nil, err
	}
	var t pieceWriter
	if IsObjectURL(path) {
		t, err = s.writeObject(ctx, path, sources, route, streams, o)
	} else {
		var save *transfer.Save
		save, err = s.sys.Engine.StartWrite(ctx, transfer.WriteRequest{Path: path, Sources: sources, Route: route,
			Checksums: !o.NoChecksums, Sums: true, Empty: true, Streams: streams})
		t = fileWrite{save}
	}
	if err != nil {
		return nil, err
	}
	job := &WriteJob{t: t, path: path, pieces: len(pieces), open: time.Since(began)}
	if o.Progress != nil {
		go watch(job, o.Progress)
	}
	return job, nil
}

// sourcesOf returns the pieces as sources of a write, one behind the other.
func sourcesOf(ctx context.Context, devices *openDevices, pieces []Piece) ([]transfer.Source, error) {
	out := make([]transfer.Source, 0, len(pieces))
	end := int64(0)
	for i, p := range pieces {
		bad := func(msg string) error {
			return errs.New(errs.Invalid, "write", devices.path, fmt.Sprintf("piece %d ", i)+msg)
		}
		s := transfer.Source{Off: end, Len: p.Size, Ptr: device.Ptr(p.Ptr), Data: p.Bytes}
		if p.Bytes != nil {
			s.Len, s.Ptr = int64(len(p.Bytes)), 0
		}
		const most = 1 << 62
		switch {
		case s.Len < 0 || s.Len > most-end:
			return nil, bad(fmt.Sprintf("has %d bytes; expected 0 or more, and at most 2^62 of all together", s.Len))
		case p.Bytes == nil && !s.Ptr.Holds(s.Len):
			return nil, bad(fmt.Sprintf("has the address 0x%x; expected an address that %d bytes can begin at",
				uint64(s.Ptr), s.Len))
		}
		if p.Bytes == nil {
			var err error
			if s.Device, err = devices.open(ctx, p.Device); err != nil {
				return nil, errs.Wrap(fmt.Sprintf("write piece %d of", i), devices.path, err)
			}
		}
		out = append(out, s)
		end += s.Len
	}
	return out, nil
}

// WritePieces writes pieces of memory to a file or an object; see System.StartWritePieces. WritePieces returns a report
// even if the write failed.
func (s *System) WritePieces(ctx context.Context, path string, pieces []Piece, o WriteOptions) (WriteReport, error) {
	progress := o.Progress
	o.Progress = nil // WritePieces makes the last call of Progress before it returns
	job, err := s.StartWritePieces(ctx, path, pieces, o)
	if err != nil {
		return WriteReport{}, err
	}
	watch(job, progress)
	return job.Report(), job.Wait()
}

// Done returns a channel that is closed when the write has ended and no longer reads the pieces.
func (w *WriteJob) Done() <-chan struct{} { return w.t.Done() }

// Wait blocks until the write has ended and returns the write's error.
func (w *WriteJob) Wait() error { return w.t.Err() }

// Progress returns the number of bytes written so far, and the total number of bytes to write.
func (w *WriteJob) Progress() (done, total int64) { return w.t.Progress() }

// Report blocks until the write has ended and returns its report.
func (w *WriteJob) Report() WriteReport {
	r := WriteReport{Path: w.path, Op: "write", Pieces: w.pieces, OpenSeconds: w.open.Seconds(), Report: w.t.Report()}
	if sums := w.t.Sums(); sums != nil {
		r.CRC64NVME = fmt.Sprintf("%016x", sums.Whole())
	}
	w.t.describe(&r)
	return r
}
