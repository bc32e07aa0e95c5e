// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"reflect"
	"testing"
)

// TestLayout holds sizes and offsets against those that a C compiler gives the
// header's structures.
func TestLayout(t *testing.T) {
	for _, c := range []struct {
		v       any
		size    uintptr
		offsets map[string]uintptr
	}{
		{descr{}, 24, map[string]uintptr{"kind": 0, "fd": 8, "fsOps": 16}},
		{Properties{}, 56, map[string]uintptr{"NVFSMajor": 0, "NVFSMinor": 4, "PollThresholdKB": 8, "MaxDirectIOKB": 16,
			"Status": 24, "Control": 28, "Features": 32,
			"MaxDeviceCacheKB": 36, "PerBufferCacheKB": 40, "MaxDevicePinnedKB": 44, "MaxBatch": 48, "MaxBatchTimeoutMS": 52}},
		{BatchParams{}, 64, map[string]uintptr{"mode": 0, "Base": 8, "FileOffset": 16, "BufOffset": 24, "Size": 32,
			"Handle": 40, "Opcode": 48, "Cookie": 56}},
		{BatchEvent{}, 24, map[string]uintptr{"Cookie": 0, "Status": 8, "Result": 16}},
		{OpCounter{}, 16, map[string]uintptr{"Failed": 8}},
		{StatsL1{}, 512, map[string]uintptr{"Read": 0, "Write": 16, "BufDeregister": 80, "ReadBytes": 96, "WriteBytes": 104,
			"ReadOpsPerSec": 144, "WriteLatencySumUS": 168,
			"BatchSubmit": 176, "BatchPosixEnqueued": 272, "BatchPosixProcessed": 304, "BatchNVFSSubmit": 320,
			"BatchP2PSubmit": 336, "BatchSubmits": 400, "BatchReadBytes": 416, "LastBatchWriteBytes": 504}},
		{StatsL2{}, 1024, map[string]uintptr{"Basic": 0, "ReadSizes": 512, "WriteSizes": 768}},
		{GPUStats{}, 248, map[string]uintptr{"UUID": 0, "ReadBytes": 16, "ReadBandwidth": 24, "ReadUtilization": 32,
			"ReadDurationUS": 40, "Reads": 48, "P2PReads": 56, "NVFSReads": 64, "PosixReads": 72,
			"UnalignedReads": 80, "RoutedReads": 88, "Sparse": 96, "Inline": 104, "ReadErrors": 112, "WriteBytes": 120,
			"WriteBandwidth": 128, "WriteUtilization": 136, "WriteDurationUS": 144,
			"Writes": 152, "P2PWrites": 160, "NVFSWrites": 168, "PosixWrites": 176, "UnalignedWrites": 184, "RoutedWrites": 192,
			"WriteErrors": 200,
			"Mappings":    208, "MappingsOK": 216, "MappingErrors": 224, "MappingsFreed": 232, "RegisteredBytes": 240}},
		{StatsL3{}, 5000, map[string]uintptr{"Detailed": 0, "numGPUs": 1024, "gpus": 1032}},
	} {
		typ := reflect.TypeOf(c.v)
		if typ.Size() != c.size {
			t.Errorf("%s has %d bytes, C has %d", typ.Name(), typ.Size(), c.size)
		}
		for name, want := range c.offsets {
			f, ok := typ.FieldByName(name)
			if !ok || f.Offset != want {
				t.Errorf("%s.%s is at %d (there: %v), C has it at %d", typ.Name(), name, f.Offset, ok, want)
			}
		}
	}
}

// TestEveryCodeHasItsMeaning goes through the header's list, which has two gaps.
func TestEveryCodeHasItsMeaning(t *testing.T) {
	seen := map[int]bool{}
	for _, m := range meanings() {
		if seen[m.code] || m.kind == 0 || m.name == "" || m.text == "" || m.fix == "" {
			t.Errorf("code %d is there twice or not whole: %+v", m.code, m)
		}
		seen[m.code] = true
	}
	for c := firstCode; c <= lastCode; c++ {
		if gap := c == 5021 || c == 5032; seen[c] == gap {
			t.Errorf("code %d: in the table %v", c, seen[c])
		}
	}
	if len(seen) != lastCode-firstCode+1-2 {
		t.Errorf("%d codes", len(seen))
	}
}

func TestMoreGPUsThanThereIsRoomFor(t *testing.T) {
	s := StatsL3{numGPUs: 1 << 31}
	if n := len(s.GPUs()); n != maxGPUs {
		t.Errorf("%d GPUs", n)
	}
}

func TestCountersAreThoseOfTheGPU(t *testing.T) {
	s := StatsL3{numGPUs: 2}
	s.gpus[0] = GPUStats{UUID: [16]byte{0: 1}, Reads: 3, P2PReads: 3, ReadBytes: 30, Writes: 1, NVFSWrites: 1,
		WriteBytes: 5}
	s.gpus[1] = GPUStats{UUID: [16]byte{0: 2, 15: 9}, Reads: 5, PosixReads: 4, UnalignedReads: 2, Sparse: 1, ReadErrors: 1,
		ReadBytes: 50}
	if c := s.of("GPU-02000000-0000-0000-0000-000000000009"); c.Reads.Total != 5 || c.Reads.Posix != 4 ||
		c.Reads.Errors != 1 || c.Reads.Unaligned != 2 || c.Reads.Sparse != 1 || c.ReadBytes != 50 || c.Writes.Total != 0 {
		t.Errorf("of the second: %+v", c)
	}
	if c := s.of("MIG-of-something"); c.Reads.Total != 8 || c.Writes.NVFS != 1 || c.ReadBytes != 80 || c.WriteBytes != 5 ||
		c.Route() != "mixed" {
		t.Errorf("of a part of a GPU: %+v", c)
	}
}
