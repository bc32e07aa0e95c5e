// SPDX-License-Identifier: Apache-2.0

package tally

import (
	"time"

	"github.com/nebulaio/nebulaio/report"
)

// ReadTotals returns the number of bytes that were read and the number of wanted bytes.
func (s *Sums) ReadTotals(wanted int64) *report.ReadTotals {
	r := report.ReadTotals{Wanted: wanted, Read: s.Extra.Bytes + s.Padding + s.CuFile.Bytes}
	for _, a := range s.Routes {
		r.Read += a.Bytes
	}
	if wanted > 0 {
		r.Amplification = float64(r.Read) / float64(wanted)
	}
	return &r
}

// Shares returns the shares of the given routes, in their order, without routes that no byte took.
func (s *Sums) Shares(names ...report.RouteTaken) []report.RouteShare {
	out := []report.RouteShare{}
	for _, name := range names {
		if a := s.Routes[name]; a.Bytes > 0 {
			out = append(out, a.Share(name))
		}
	}
	return out
}

// stages collects the stages that processed a chunk.
type stages []report.Stage

func (l *stages) add(name string, a *Account) {
	if a.Chunks > 0 {
		*l = append(*l, a.Stage(name))
	}
}

func (l *stages) copies(s *Sums) {
	if s.Copying.Chunks > 0 {
		*l = append(*l, s.Copying.Stage(StageCopy), report.Stage{Stage: StageWaitCopy, Busy: s.CopyWait.Seconds()})
	}
}

// LoadStages lists the stages of a load in the order in which a chunk passes them.
func (s *Sums) LoadStages() []report.Stage {
	out := stages{{Stage: StagePlan, Busy: s.PlanTime.Seconds()}}
	out.add(StageReadCache, &s.Cached)
	out.add(StageReadDirect, &s.Direct)
	out.add(StageReadNetwork, &s.Network)
	out.add(StageReadCuFile, &s.CuFile)
	out.add("read_extra", &s.Extra)
	out.add(StageVerify, &s.Verify)
	out.add(StagePack, &s.Packing)
	out.copies(s)
	return out
}

// SaveStages lists the stages of a save in the order in which a chunk passes them. The parameter `steps` lists the
// steps that create and publish the file. If the first step is "reserve", it is listed before the stages that move
// bytes.
func (s *Sums) SaveStages(steps []report.Stage) []report.Stage {
	var out stages
	if len(steps) > 0 && steps[0].Stage == "reserve" {
		out, steps = append(out, steps[0]), steps[1:]
	}
	out.copies(s)
	out.add(StageChecksum, &s.Verify)
	out.add(StageWrite, &s.Writing)
	return append(out, steps...)
}

// UploadStages lists the stages of an upload. The parameter `complete` is the time that the server needed to complete
// the object.
func (s *Sums) UploadStages(complete time.Duration) []report.Stage {
	out := stages{}
	out.copies(s)
	out.add(StageSend, &s.Network)
	if complete > 0 {
		out = append(out, report.Stage{Stage: "complete", Busy: complete.Seconds()})
	}
	return out
}

// PutStages lists the stages of a write to a range of an open file.
func (s *Sums) PutStages() []report.Stage {
	out := stages{}
	out.add(StageCopy, &s.Copying)
	out.add(StageWrite, &s.Writing)
	return out
}

// LoadLimit returns the name of the stage that limited the rate of a load. The parameter `wall` is the elapsed time of
// the load. If O_DIRECT reads span most of the load's time, the limit is storage. If most bytes came from memory shared
// with loads in other processes, the limit is the reads of these loads. If readers wait for copies to the device for
// more than a tenth of their time, the limit is the copy. Otherwise the limit is the CPU: reading from the page cache,
// packing or verification.
func (s *Sums) LoadLimit(wall time.Duration) string {
	buffered := s.Routes[report.RouteTakenBuffered].Bytes + s.Routes[report.RouteTakenBufferedUnproven].Bytes
	switch {
	case s.CuFile.Bytes > 0 && s.CuFile.Span() > wall*8/10:
		return "storage read by cuFile"
	case s.Network.Bytes > 0 && s.Network.Span() > wall*8/10:
		if s.CopyWait > s.Network.Busy {
			return "copy to device"
		}
		return "network read"
	case s.Direct.Bytes > 0 && s.Direct.Span() > wall*8/10:
		return "storage read"
	case buffered > s.Cached.Bytes/2:
		return "storage read through the page cache"
	case s.Routes[report.RouteTakenShared].Bytes > s.Cached.Bytes/2:
		return "storage read by other processes"
	case s.CopyWait > (s.CopyWait+s.Cached.Busy)/10:
		return "copy to device"
	case s.Cached.Bytes > 0 && s.Packing.Busy > max(s.Cached.Busy, s.Verify.Busy):
		return "packing of slices (CPU)"
	case s.Cached.Bytes > 0 && s.Verify.Busy > s.Cached.Busy:
		return "verification (CPU)"
	case s.Cached.Bytes > 0:
		return "page-cache read (CPU)"
	}
	return "none"
}

// SaveLimit returns the name of the stage that limited the rate of a save. The parameter `wall` is the elapsed time of
// the save. The steps that create and publish the file do not overlap with the writes.
func (s *Sums) SaveLimit(wall time.Duration, steps []report.Stage) string {
	once := time.Duration(0)
	for _, x := range steps {
		once += time.Duration(x.Busy * float64(time.Second))
	}
	switch {
	case s.Writing.Chunks == 0:
		return "none"
	case once > wall/2:
		return "making it durable"
	case s.CopyWait > s.Writing.Busy:
		return "copy from device"
	case s.Verify.Busy > s.Writing.Busy:
		return "checksums (CPU)"
	}
	return "storage write"
}

// UploadLimit returns the name of the stage that limited the rate of an upload.
func (s *Sums) UploadLimit() string {
	switch {
	case s.Network.Bytes == 0:
		return "none"
	case s.CopyWait > s.Network.Busy/2:
		return "copy from device"
	}
	return "network write"
}

// PutLimit returns the name of the stage that limited the rate of a write to a range of an open file.
func (s *Sums) PutLimit() string {
	switch {
	case s.Writing.Bytes == 0:
		return "none"
	case s.Copying.Busy > s.Writing.Busy:
		return "copy from device"
	}
	return "storage write"
}
