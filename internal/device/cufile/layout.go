// SPDX-License-Identifier: Apache-2.0

package cufile

// The structures of cufile.h as C lays them out on 64-bit Linux. Go puts fields
// at the same offsets; the explicit gaps make that visible, and layout_test.go
// holds every size and offset against the header's.

// descr is CUfileDescr_t.
type descr struct {
	kind  int32
	_     int32
	fd    int32 // of a union with a pointer
	_     int32
	fsOps uintptr
}

// handleFD is CU_FILE_HANDLE_TYPE_OPAQUE_FD.
const handleFD = 1

// Properties is CUfileDrvProps_t: what the driver supports and its limits.
// Releases of libcufile before 1.2 do not set the last two fields.
type Properties struct {
	NVFSMajor, NVFSMinor      uint32 // 0 and 0: no nvidia-fs
	PollThresholdKB           uint64
	MaxDirectIOKB             uint64
	Status, Control, Features uint32 // bits
	MaxDeviceCacheKB          uint32
	PerBufferCacheKB          uint32
	MaxDevicePinnedKB         uint32
	MaxBatch                  uint32
	MaxBatchTimeoutMS         uint32
}

// BatchParams is CUfileIOParams_t: one request of a batch.
type BatchParams struct {
	mode       int32 // always batch
	_          int32
	Base       uint64
	FileOffset int64
	BufOffset  int64
	Size       uint64
	Handle     uintptr
	Opcode     int32 // OpRead or OpWrite
	_          int32
	Cookie     uint64
}

// BatchEvent is CUfileIOEvents_t: how one request of a batch stands.
type BatchEvent struct {
	Cookie uint64
	Status int32 // one of the Batch... bits
	_      int32
	Result int64 // bytes, or a negative code
}

// OpCounter is CUfileOpCounter_t.
type OpCounter struct{ OK, Failed uint64 }

// StatsL1 is CUfileStatsLevel1_t: operations and bytes of the whole process.
type StatsL1 struct {
	Read, Write, HandleRegister, HandleDeregister, BufRegister, BufDeregister                         OpCounter
	ReadBytes, WriteBytes, ReadBandwidth, WriteBandwidth, ReadLatencyAvgUS, WriteLatencyAvgUS         uint64
	ReadOpsPerSec, WriteOpsPerSec, ReadLatencySumUS, WriteLatencySumUS                                uint64
	BatchSubmit, BatchComplete, BatchSetup, BatchCancel, BatchDestroy, BatchEnqueued                  OpCounter
	BatchPosixEnqueued, BatchProcessed, BatchPosixProcessed                                           OpCounter
	BatchNVFSSubmit, BatchP2PSubmit, BatchAIOSubmit, BatchURingSubmit, BatchMixedSubmit, BatchSubmits OpCounter
	BatchReadBytes, BatchWriteBytes, BatchReadBandwidth, BatchWriteBandwidth                          uint64
	BatchSubmitLatencyAvgUS, BatchCompletionLatencyAvgUS, BatchSubmitsPerSec, BatchCompletesPerSec    uint64
	BatchSubmitLatencySumUS, BatchCompletionLatencySumUS, LastBatchReadBytes, LastBatchWriteBytes     uint64
}

// StatsL2 is CUfileStatsLevel2_t: level 1 with histograms of sizes in KiB.
type StatsL2 struct {
	Basic                 StatsL1
	ReadSizes, WriteSizes [32]uint64
}

// GPUStats is CUfilePerGpuStats_t: what one GPU read and wrote, by route.
type GPUStats struct {
	UUID                                                                                   [16]byte
	ReadBytes, ReadBandwidth, ReadUtilization, ReadDurationUS                              uint64
	Reads, P2PReads, NVFSReads, PosixReads, UnalignedReads, RoutedReads, Sparse, Inline    uint64
	ReadErrors                                                                             uint64
	WriteBytes, WriteBandwidth, WriteUtilization, WriteDurationUS                          uint64
	Writes, P2PWrites, NVFSWrites, PosixWrites, UnalignedWrites, RoutedWrites, WriteErrors uint64
	Mappings, MappingsOK, MappingErrors, MappingsFreed, RegisteredBytes                    uint64
}

// maxGPUs is how many GPUs level 3 has room for.
const maxGPUs = 16

// StatsL3 is CUfileStatsLevel3_t: level 2 with each GPU.
type StatsL3 struct {
	Detailed StatsL2
	numGPUs  uint32
	_        uint32
	gpus     [maxGPUs]GPUStats
}

// GPUs are those that the library counted for.
func (s *StatsL3) GPUs() []GPUStats { return s.gpus[:min(s.numGPUs, maxGPUs)] }
