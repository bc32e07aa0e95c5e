// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// perGPU is the level of statistics with counters by GPU and route.
const perGPU = 3

// CanCount returns nil if libcufile can count operations by route. If libcufile cannot count by route, CanCount
// returns an error of kind Unsupported that names the missing function.
func (l *Library) CanCount() error {
	return l.need("count with", &l.fn.setStatsLevel, &l.fn.getStatsLevel, &l.fn.statsStart, &l.fn.statsStop, &l.fn.statsL3)
}

// SetStatsLevel sets the level of cuFile statistics for the whole process, from 0 (none) to 3 (by GPU and route).
func (l *Library) SetStatsLevel(level int) error {
	if err := l.need("count with", &l.fn.setStatsLevel); err != nil {
		return err
	}
	return check("cuFileSetStatsLevel", l.fn.setStatsLevel.Call(level))
}

// StatsLevel returns the current level of cuFile statistics, from 0 to 3.
func (l *Library) StatsLevel() (int, error) {
	if err := l.need("count with", &l.fn.getStatsLevel); err != nil {
		return 0, err
	}
	var v int32
	err := check("cuFileGetStatsLevel", l.fn.getStatsLevel.Call(ptr(&v)))
	return int(v), err
}

// StatsStart starts the cuFile statistics of the whole process.
func (l *Library) StatsStart() error {
	if err := l.need("count with", &l.fn.statsStart); err != nil {
		return err
	}
	return check("cuFileStatsStart", l.fn.statsStart.Call())
}

// StatsStop stops the cuFile statistics of the whole process.
func (l *Library) StatsStop() error {
	if err := l.need("count with", &l.fn.statsStop); err != nil {
		return err
	}
	return check("cuFileStatsStop", l.fn.statsStop.Call())
}

// StatsReset sets all cuFile statistics of the process to zero.
func (l *Library) StatsReset() error {
	if err := l.need("count with", &l.fn.statsReset); err != nil {
		return err
	}
	return check("cuFileStatsReset", l.fn.statsReset.Call())
}

// StatsL1 returns the cuFile statistics of level 1, for the whole process.
func (l *Library) StatsL1() (*StatsL1, error) {
	if err := l.need("count with", &l.fn.statsL1); err != nil {
		return nil, err
	}
	s := new(StatsL1)
	return s, check("cuFileGetStatsL1", l.fn.statsL1.Call(ptr(s)))
}

// StatsL2 returns the cuFile statistics of level 2, with histograms of the sizes of reads and writes.
func (l *Library) StatsL2() (*StatsL2, error) {
	if err := l.need("count with", &l.fn.statsL2); err != nil {
		return nil, err
	}
	s := new(StatsL2)
	return s, check("cuFileGetStatsL2", l.fn.statsL2.Call(ptr(s)))
}

// StatsL3 returns the cuFile statistics of level 3, with counters of each GPU.
func (l *Library) StatsL3() (*StatsL3, error) {
	if err := l.need("count with", &l.fn.statsL3); err != nil {
		return nil, err
	}
	s := new(StatsL3)
	return s, check("cuFileGetStatsL3", l.fn.statsL3.Call(ptr(s)))
}

// startCounting starts the statistics by GPU and route for the first of our sessions that asks. It raises the level
// only if no other part of the process has the driver open.
func (l *Library) startCounting(shared bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counting > 0 {
		l.counting++
		return nil
	}
	level, err := l.StatsLevel()
	if err != nil {
		return err
	}
	if level < perGPU {
		if shared {
			return errs.New(errs.Unsupported, "cuFile", "",
				fmt.Sprintf("counts at level %d, and another part of this process had it open before, whose settings are not "+
					"ours to change", level)).
				WithFix("set profile.cufile_stats to 3 in cufile.json")
		}
		if err := l.SetStatsLevel(perGPU); err != nil {
			return err
		}
		l.level = level
	}
	err = l.StatsStart()
	if err != nil {
		err = l.StatsStart() // 1.15 refuses the first call after a boot
	}
	if err != nil && l.level >= 0 {
		return errors.Join(err, l.restoreLevel())
	}
	// If the library counted before, a refusal means nothing.
	l.counting++
	return nil
}

// stopCounting reverses one startCounting. The last one restores the level.
func (l *Library) stopCounting() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counting--; l.counting > 0 || l.level < 0 {
		return nil
	}
	return errors.Join(l.StatsStop(), l.restoreLevel())
}

// restoreLevel restores the level that startCounting changed. The caller holds mu.
func (l *Library) restoreLevel() error {
	level := l.level
	l.level = -1
	return l.SetStatsLevel(level)
}

// of returns the counters of the GPU with the given UUID, as CUDA writes it. If no GPU has this UUID, as with a MIG
// instance, of adds up all GPUs, because a count that is too wide is better than none.
func (s *StatsL3) of(uuid string) device.DirectCounters {
	id, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(uuid, "GPU-"), "-", ""))
	ours := func(g *GPUStats) bool { return err == nil && string(g.UUID[:]) == string(id) }
	all := true
	for i := range s.GPUs() {
		all = all && !ours(&s.gpus[i])
	}
	b := &s.Detailed.Basic
	c := device.DirectCounters{Known: true, BatchBytes: int64(b.BatchReadBytes + b.BatchWriteBytes),
		Batch: device.RouteOps{Total: int64(b.BatchProcessed.OK + b.BatchPosixProcessed.OK),
			P2P: int64(b.BatchP2PSubmit.OK), NVFS: int64(b.BatchNVFSSubmit.OK), Posix: int64(max(b.BatchPosixProcessed.OK,
				b.BatchPosixEnqueued.OK)), Errors: int64(b.BatchProcessed.Failed + b.BatchPosixProcessed.Failed)}}
	for i := range s.GPUs() {
		g := &s.gpus[i]
		if !all && !ours(g) {
			continue
		}
		c.Reads = c.Reads.Plus(device.RouteOps{Total: int64(g.Reads), P2P: int64(g.P2PReads), NVFS: int64(g.NVFSReads),
			Posix:     int64(g.PosixReads),
			Unaligned: int64(g.UnalignedReads), Sparse: int64(g.Sparse), Errors: int64(g.ReadErrors)})
		c.Writes = c.Writes.Plus(device.RouteOps{Total: int64(g.Writes), P2P: int64(g.P2PWrites), NVFS: int64(g.NVFSWrites),
			Posix:     int64(g.PosixWrites),
			Unaligned: int64(g.UnalignedWrites), Errors: int64(g.WriteErrors)})
		c.ReadBytes += int64(g.ReadBytes)
		c.WriteBytes += int64(g.WriteBytes)
	}
	return c
}
