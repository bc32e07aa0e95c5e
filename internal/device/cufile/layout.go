// SPDX-License-Identifier: Apache-2.0

package cufile

// The structures below have the layout of cufile.h on 64-bit Linux. Go places fields at the same offsets as C. The
// explicit gaps make this visible, and layout_test.go compares every size and offset with the header.

// descr is CUfileDescr_t.
type descr struct {
	kind  int32
	_     int32
	fd    int32 // a member of a union with a pointer
	_     int32
	fsOps uintptr
}

// handleFD is CU_FILE_HANDLE_TYPE_OPAQUE_FD.
const handleFD = 1

// Properties is CUfileDrvProps_t: the features and limits of the cuFile driver. Releases of libcufile before 1.2 do
// not set MaxBatch and MaxBatchTimeoutMS.
type Properties struct {
	NVFSMajor, NVFSMinor      uint32 // version of nvidia-fs; both are 0 if nvidia-fs is not loaded
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

// BatchEvent is CUfileIOEvents_t: the state and result of one request of a batch.
type BatchEvent struct {
	Cookie uint64
	Status int32 // the state of the request, one of BatchWaiting to BatchFailed
	_      int32
	Result int64 // the bytes that the request moved, or a negative error code
}

// OpCounter is CUfileOpCounter_t: the numbers of successful and of failed operations.
type OpCounter struct{ OK, Failed uint64 }

// StatsL1 is CUfileStatsLevel1_t: counters of operations and bytes of the whole process.
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

// StatsL2 is CUfileStatsLevel2_t: the counters of level 1, and histograms of the sizes of reads and writes, in KiB.
type StatsL2 struct {
	Basic                 StatsL1
	ReadSizes, WriteSizes [32]uint64
}

// GPUStats is CUfilePerGpuStats_t: counters of the reads and writes of one GPU, by route.
type GPUStats struct {
	UUID                                                                                   [16]byte
	ReadBytes, ReadBandwidth, ReadUtilization, ReadDurationUS                              uint64
	Reads, P2PReads, NVFSReads, PosixReads, UnalignedReads, RoutedReads, Sparse, Inline    uint64
	ReadErrors                                                                             uint64
	WriteBytes, WriteBandwidth, WriteUtilization, WriteDurationUS                          uint64
	Writes, P2PWrites, NVFSWrites, PosixWrites, UnalignedWrites, RoutedWrites, WriteErrors uint64
	Mappings, MappingsOK, MappingErrors, MappingsFreed, RegisteredBytes                    uint64
}

// maxGPUs is the largest number of GPUs in the statistics of level 3.
const maxGPUs = 16

// StatsL3 is CUfileStatsLevel3_t: the counters of level 2, and the counters of each GPU.
type StatsL3 struct {
	Detailed StatsL2
	numGPUs  uint32
	_        uint32
	gpus     [maxGPUs]GPUStats
}

// GPUs returns the counters of each GPU for which libcufile has counted operations.
func (s *StatsL3) GPUs() []GPUStats { return s.gpus[:min(s.numGPUs, maxGPUs)] }
