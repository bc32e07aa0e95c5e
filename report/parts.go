// SPDX-License-Identifier: Apache-2.0

package report

// Save holds the fields of a report that only a save has.
type Save struct {
	// Durable is true if the file and its directory entry were on storage when the save ended. Durable is false if
	// the save failed, if the file system is in memory, or if the file system cannot sync a directory.
	Durable  bool `json:"durable"`
	Replaced bool `json:"replaced"` // true if the save replaced an existing file
	Reserved bool `json:"reserved"` // true if disk blocks were allocated before the first write
	// Checksums is the path of the checksum file, or empty if the caller asked for no checksums.
	Checksums      string   `json:"checksums,omitempty"`
	ChecksumBlocks int      `json:"checksum_blocks,omitempty"`
	Sources        []Source `json:"sources"`
}

// Source counts the bytes of a saved file that came from one device.
type Source struct {
	Device string `json:"device"` // ID of the device, or "memory" for the header and other bytes from Go memory
	Bytes  int64  `json:"bytes"`
}

// Sharing describes how a load read one file together with other loads on the same host.
type Sharing struct {
	// Processes are the ids of the other processes that loaded the file at the same time, as these processes see their
	// ids. Processes is empty if another process opened the file and its load was not seen.
	Processes []int `json:"processes"`
	// DiskBytes counts the bytes that this load read from storage for all processes, into memory that they share or into
	// the page cache.
	DiskBytes int64 `json:"disk_bytes"`
	// MemoryBytes counts the bytes that other processes had read from storage with O_DIRECT, and that this load took
	// from memory shared with them.
	MemoryBytes int64 `json:"memory_bytes"`
	// CacheBytes counts the bytes that were not cached when this load began, and that it found in the page cache,
	// because other processes had read them.
	CacheBytes int64 `json:"cache_bytes"`
	// DirectBytes counts the bytes that this load read for itself, past the page cache.
	DirectBytes int64 `json:"direct_bytes"`
	// Apart is the reason why this load could not share memory with the others. Apart is empty if it could.
	Apart string `json:"apart,omitempty"`
}

// Peer is a further device that received a copy of the bytes that the first device received.
type Peer struct {
	Device Device `json:"device"`
	Bytes  int64  `json:"bytes"`
	Way    string `json:"way"` // how the bytes reached the peer: "p2p", "staging" or "memory"
	// Refused is the reason why the bytes were not copied from GPU to GPU ("p2p"). Refused is nil if Way is "p2p", and
	// for copies within host memory.
	Refused *Refusal `json:"refused,omitempty"`
}

// Network counts the requests of a transfer to servers. If several files of one transfer share a connection, the
// connection counts once for each file.
type Network struct {
	Traffic
	Fetchers int `json:"fetchers"` // largest number of requests to servers at the same time
}

// Traffic counts the requests, retries and connections to a server.
type Traffic struct {
	Requests    int64 `json:"requests"`
	Retries     int64 `json:"retries"`     // requests that were repeated or resumed
	Connections int64 `json:"connections"` // connections that carried the requests
}

// Verification counts the blocks of a transfer that were compared with their checksums.
type Verification struct {
	Algorithm string `json:"algorithm"` // "crc64nvme"
	Files     int    `json:"files"`
	Blocks    int64  `json:"blocks"` // number of blocks that matched their checksums
	Bytes     int64  `json:"bytes"`  // number of bytes whose checksums were computed, including Extra
	// Where is the processor that computed the checksums: "device" (the GPU, after the copy), "host" (the CPU) or
	// "both".
	Where       string `json:"where"`
	DeviceBytes int64  `json:"device_bytes"` // number of bytes whose checksums the device computed
	// Extra counts bytes that were read only to compute the checksum of a whole block. Report.Bytes does not include
	// Extra.
	Extra int64 `json:"extra_bytes"`
	// Busy is the time in seconds that all workers together spent on checksums, without the time of the GPU.
	Busy float64 `json:"busy_seconds"`
}

// Add adds the counts of the verification o to the counts of v.
func (v *Verification) Add(o *Verification) {
	v.Algorithm = o.Algorithm
	v.Files, v.Blocks, v.Bytes, v.Extra = v.Files+o.Files, v.Blocks+o.Blocks, v.Bytes+o.Bytes, v.Extra+o.Extra
	v.DeviceBytes, v.Busy = v.DeviceBytes+o.DeviceBytes, v.Busy+o.Busy
	v.Where = v.Place()
}

// Place returns "host", "device" or "both", computed from the counts of bytes; see Verification.Where.
func (v *Verification) Place() string {
	switch v.DeviceBytes {
	case 0:
		return "host"
	case v.Bytes:
		return "device"
	}
	return "both"
}

// CuFile describes the work of libcufile in a transfer, with the counts of its operations.
type CuFile struct {
	Version string    `json:"version"` // version of libcufile
	API     CuFileAPI `json:"api"`
	// Counters count libcufile's operations on the transfer's device while the transfer ran. If Counters is nil,
	// nothing was counted, and Uncounted gives the reason.
	Counters  *CuFileCounters `json:"counters"`
	Uncounted string          `json:"uncounted,omitempty"`
	// Unaligned counts operations that went through a buffer of libcufile because they were not aligned.
	Unaligned int64 `json:"unaligned"`
	// Others is true if Counters include operations of other transfers on the same device.
	Others bool `json:"others,omitempty"`
	// Shared is true if another part of the process opened libcufile before NebulaIO did; libcufile then uses the
	// settings of that part.
	Shared bool `json:"shared"`
	// Opened is true if this transfer opened libcufile. Contexts is the number of GPUs on which libcufile made a CUDA
	// context.
	Opened     bool  `json:"opened"`
	Contexts   int   `json:"contexts"`
	Registered int64 `json:"registered_bytes"`
}

// CuFileCounters count the operations of libcufile on one device.
type CuFileCounters struct {
	Known bool `json:"known"` // false if the counters are not known; all other fields are then 0
	// CountedBy is "nebulaio" if NebulaIO counted the operations, and empty if libcufile counted them. NebulaIO counts
	// the operations if libcufile can only work in compatibility mode on this machine. NebulaIO counts every operation
	// in the field Posix and leaves the fields Unaligned and Sparse at 0.
	CountedBy  string    `json:"counted_by,omitempty"`
	Reads      CuFileOps `json:"reads"`
	Writes     CuFileOps `json:"writes"`
	ReadBytes  int64     `json:"read_bytes"`
	WriteBytes int64     `json:"write_bytes"`
	// Batch counts the requests that were submitted to libcufile in batches. Some releases of libcufile count batch
	// requests only for the whole process, not for one device.
	Batch      CuFileOps `json:"batch,omitzero"`
	BatchBytes int64     `json:"batch_bytes,omitempty"`
}

// Basis returns the reason why the route of the bytes is known although libcufile did not count the operations. Basis
// returns "" if libcufile counted the operations.
func (c CuFileCounters) Basis() string {
	if !c.Known || c.CountedBy != "nebulaio" {
		return ""
	}
	return "counted by nebulaio: only compatibility mode is possible here"
}

// CuFileOps counts the reads or the writes of libcufile by route. If libcufile split an operation into several
// requests, each request is counted.
type CuFileOps struct {
	Total     int64 `json:"total"`
	P2P       int64 `json:"p2p"`
	NVFS      int64 `json:"nvfs"`
	Posix     int64 `json:"posix"`
	Unaligned int64 `json:"unaligned"` // unaligned operations, which went through a buffer of libcufile
	Sparse    int64 `json:"sparse"`    // operations on holes of a sparse file
	Errors    int64 `json:"errors"`
}
