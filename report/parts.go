// SPDX-License-Identifier: Apache-2.0

package report

// Save is the part of a report that only a save has.
type Save struct {
	// Durable says that the file and its name were on storage when the save ended. It is false if the save failed, if
	// the file system lives in memory, and if the file system cannot sync a directory.
	Durable  bool `json:"durable"`
	Replaced bool `json:"replaced"` // a file of that name existed
	Reserved bool `json:"reserved"` // disk blocks were allocated before the first write
	// Checksums is the path of the checksum file. It is empty if none was asked for.
	Checksums      string   `json:"checksums,omitempty"`
	ChecksumBlocks int      `json:"checksum_blocks,omitempty"`
	Sources        []Source `json:"sources"`
}

// Source is one device's share of a saved file.
type Source struct {
	Device string `json:"device"` // "memory" for the header and other bytes of the caller
	Bytes  int64  `json:"bytes"`
}

// Peer is a further device that received the same bytes.
type Peer struct {
	Device Device `json:"device"`
	Bytes  int64  `json:"bytes"`
	Way    string `json:"way"` // "p2p", "staging" or "memory"
	// Refused says why the way is not p2p. It is nil if the way is p2p, and between host memories.
	Refused *Refusal `json:"refused,omitempty"`
}

// Network counts the requests to servers. A connection that several files of one transfer share counts once for each
// file.
type Network struct {
	Traffic
	Fetchers int `json:"fetchers"` // requests that may run at once
}

// Traffic counts requests to a server.
type Traffic struct {
	Requests    int64 `json:"requests"`
	Retries     int64 `json:"retries"`     // requests that were repeated or resumed
	Connections int64 `json:"connections"` // connections that carried the requests
}

// Verification counts the blocks that were compared with their checksums.
type Verification struct {
	Algorithm string `json:"algorithm"` // "crc64nvme"
	Files     int    `json:"files"`
	Blocks    int64  `json:"blocks"` // blocks that matched
	Bytes     int64  `json:"bytes"`  // bytes that were summed, with Extra
	// Where the bytes were summed: "device" (after their copy), "host" (by the CPU) or "both".
	Where       string `json:"where"`
	DeviceBytes int64  `json:"device_bytes"` // bytes that the device summed
	// Extra counts bytes that were read only to complete a block. No other count includes them.
	Extra int64 `json:"extra_bytes"`
	// Busy adds up the CPU time of all workers in seconds, without the time of the device.
	Busy float64 `json:"busy_seconds"`
}

// Add adds the counts of another verification.
func (v *Verification) Add(o *Verification) {
	v.Algorithm = o.Algorithm
	v.Files, v.Blocks, v.Bytes, v.Extra = v.Files+o.Files, v.Blocks+o.Blocks, v.Bytes+o.Bytes, v.Extra+o.Extra
	v.DeviceBytes, v.Busy = v.DeviceBytes+o.DeviceBytes, v.Busy+o.Busy
	v.Where = v.Place()
}

// Place returns the value of Where that follows from the counts.
func (v *Verification) Place() string {
	switch v.DeviceBytes {
	case 0:
		return "host"
	case v.Bytes:
		return "device"
	}
	return "both"
}

// CuFile is libcufile's part of a transfer, by counted operations.
type CuFile struct {
	Version string    `json:"version"` // of libcufile
	API     CuFileAPI `json:"api"`
	// Counters count operations on the transfer's device while the transfer ran. They are nil if nobody counted, and
	// Uncounted says why.
	Counters  *CuFileCounters `json:"counters"`
	Uncounted string          `json:"uncounted,omitempty"`
	// Unaligned counts operations that went through a buffer of libcufile.
	Unaligned int64 `json:"unaligned"`
	// Others says that the counters include other transfers of the device.
	Others bool `json:"others,omitempty"`
	// Shared says that another part of the process opened libcufile before. Its settings are in force.
	Shared bool `json:"shared"`
	// Opened says that this transfer opened libcufile, which made a context on each of Contexts GPUs.
	Opened     bool  `json:"opened"`
	Contexts   int   `json:"contexts"`
	Registered int64 `json:"registered_bytes"`
}

// CuFileCounters count the operations of libcufile on one device.
type CuFileCounters struct {
	Known bool `json:"known"` // if false, the other fields are zero and mean nothing
	// CountedBy is "nebulaio" if NebulaIO counted, because only compatibility mode is possible. Every operation then
	// counts as Posix, and Unaligned and Sparse are not known. It is empty if libcufile counted.
	CountedBy  string    `json:"counted_by,omitempty"`
	Reads      CuFileOps `json:"reads"`
	Writes     CuFileOps `json:"writes"`
	ReadBytes  int64     `json:"read_bytes"`
	WriteBytes int64     `json:"write_bytes"`
	// Batch counts requests of batches. Some releases of libcufile count them for the whole process and nowhere else.
	Batch      CuFileOps `json:"batch,omitzero"`
	BatchBytes int64     `json:"batch_bytes,omitempty"`
}

// Basis says why the route is known although libcufile did not count. It is empty if libcufile counted.
func (c CuFileCounters) Basis() string {
	if !c.Known || c.CountedBy != "nebulaio" {
		return ""
	}
	return "counted by nebulaio: only compatibility mode is possible here"
}

// CuFileOps counts operations of one direction by route. An operation that libcufile split counts once for each part.
type CuFileOps struct {
	Total     int64 `json:"total"`
	P2P       int64 `json:"p2p"`
	NVFS      int64 `json:"nvfs"`
	Posix     int64 `json:"posix"`
	Unaligned int64 `json:"unaligned"` // went through a buffer of libcufile
	Sparse    int64 `json:"sparse"`    // met holes of the file
	Errors    int64 `json:"errors"`
}
