// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// ChecksumJob is a running job that computes the checksums of files and writes them; see Source.StartChecksums.
type ChecksumJob struct {
	src    *Source
	total  int64
	count  atomic.Int64
	done   chan struct{}
	err    error
	report ChecksumReport
}

// ChecksumReport lists the checksum files that a ChecksumJob wrote.
type ChecksumReport struct {
	Files   []ChecksumFile `json:"files"`
	Bytes   int64          `json:"bytes"` // number of bytes whose checksums were computed
	Seconds float64        `json:"seconds"`
	Error   string         `json:"error,omitempty"`
}

// ChecksumFile describes one checksum file that was written.
type ChecksumFile struct {
	Path   string `json:"path"`
	Block  int64  `json:"block_size"`
	Blocks int    `json:"blocks"`
}

// StartChecksums begins to compute the checksums of every file of the source and returns at once. For each FILE, the
// job writes a checksum file FILE.crc64nvme in the same directory; a load with the option Verify reads it. If the
// context ends or a file cannot be read, the job writes no checksum file. Keep the source open until the job has
// ended.
func (s *Source) StartChecksums(ctx context.Context) *ChecksumJob {
	c := &ChecksumJob{src: s, done: make(chan struct{})}
	for _, f := range s.model.Files {
		c.total += f.Size
	}
	go func() {
		defer close(c.done)
		began := time.Now()
		c.err = c.run(ctx)
		c.report.Bytes, c.report.Seconds = c.count.Load(), time.Since(began).Seconds()
		if c.err != nil {
			c.report.Error = c.err.Error()
		}
	}()
	return c
}

func (c *ChecksumJob) run(ctx context.Context) error {
	c.report.Files = []ChecksumFile{}
	if err := c.src.model.Usable("checksum"); err != nil {
		return err
	}
	if c.src.model.Stored() {
		return errs.New(errs.Unsupported, "checksum", c.src.model.Path,
			"it lies in a bucket: FILE.crc64nvme is written beside files of this machine").
			WithFix("none needed through the door, which has sums of every object; else copy the sidecars of the files too")
	}
	files := c.src.model.Files
	sums := make([]*checksum.Sums, len(files))
	before := int64(0)
	for i, f := range files {
		var err error
		if sums[i], err = checksum.Compute(ctx, f.Path, checksum.DefaultBlock,
			func(done, _ int64) { c.count.Store(before + done) }); err != nil {
			return err
		}
		// The headers were checked when the source was opened. If the file has changed since, its checksums would
		// vouch for unchecked headers.
		if err := sums[i].CheckSize(f.Path, f.Size); err != nil {
			return err
		}
		before += f.Size
	}
	for i, s := range sums {
		name, err := s.Write(files[i].Path)
		if err != nil {
			return err
		}
		c.report.Files = append(c.report.Files, ChecksumFile{Path: name, Block: s.Block, Blocks: len(s.Blocks)})
	}
	return nil
}

// Done returns a channel that is closed when the job has ended.
func (c *ChecksumJob) Done() <-chan struct{} { return c.done }

// Wait blocks until the job has ended and returns the job's error.
func (c *ChecksumJob) Wait() error {
	<-c.done
	return c.err
}

// Progress returns the number of bytes read for checksums so far, and the total number of bytes to read.
func (c *ChecksumJob) Progress() (done, total int64) { return c.count.Load(), c.total }

// Report blocks until the job has ended and lists the checksum files that were written.
func (c *ChecksumJob) Report() ChecksumReport {
	<-c.done
	return c.report
}
