// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

// Hello is the client's first message.
type Hello struct {
	Min, Max uint16 // the oldest and the newest protocol version that the client speaks
	Agent    string // the name of the client program, for logs
}

// Challenge is the server's answer to Hello.
type Challenge struct {
	Version uint16 // the protocol version of this connection
	Store   string // the ID of the store, which the S3 endpoint's discovery returns too
	Nonce   [NonceSize]byte
}

// BindSocket and BindProcess are the two ways to identify the server's end of a connection. BindSocket alone or
// BindProcess alone is enough to detect a relay.
const (
	// BindSocket identifies the server's end by the inode number of its socket. The client asks the kernel for the
	// inode number of the server's socket (unix_diag).
	BindSocket uint8 = 1
	// BindProcess identifies the server's end by the pidfs inode number of the listening process (SO_PEERPIDFD, Linux
	// 6.9).
	BindProcess uint8 = 2
)

// ChallengeTime is the longest time that a client waits for the Challenge. ChallengeTime is so short that the kernel
// cannot reuse a socket's 32-bit inode number within this time.
const ChallengeTime = 5 * time.Second

// Binding identifies the server's end of a connection, as the client or the server sees it.
type Binding struct {
	Kind uint8 // BindSocket or BindProcess
	ID   uint64
}

// Proof is the client's answer to Challenge; its MAC proves that the client knows the secret (see ClientMAC).
type Proof struct {
	AccessKey string
	Nonce     [NonceSize]byte
	Binding   Binding // the server's end of the connection, as the client's kernel reports it
	MAC       [MACSize]byte
}

// Greeting is the server's last message of the handshake. The MAC of Greeting proves that the server knows the secret
// (see ServerMAC). The fields of Greeting other than MAC are the server's settings and limits. The server enforces
// MaxTransferSize, Devices, Writes and the limits in Greeting; its other settings are defaults for the client.
type Greeting struct {
	MAC [MACSize]byte
	// BufferPoolSize, MaxTransferSize, QueueDepth, Async and P2P are settings of the section gpudirect in the
	// server's configuration.
	BufferPoolSize  int64
	MaxTransferSize int64 // the largest range of an Open or a Move in bytes, enforced by the server
	QueueDepth      uint32
	Async           bool
	P2P             bool
	// Devices are the indices of the GPUs of this host that clients may use; an empty list means all. The server
	// enforces the list Devices.
	Devices []uint32
	// Writes reports whether clients can create objects through the door. If Writes is false, WritesWhy is the
	// reason.
	Writes    bool
	WritesWhy string
	// MaxHandles is the largest number of open objects and drafts of one access key.
	MaxHandles uint32
	MaxDraft   int64         // the largest size of all drafts of one access key together, in bytes
	Idle       time.Duration // the time after which the server closes a silent connection; Ping keeps it open
	// Notes are warnings about the server for the client's user, such as a missing protection.
	Notes []string
}

// Device names the GPU, or the host memory, that the client transfers to or from.
type Device struct {
	Index int32  // the GPU's index in the client's own numbering; -1 means host memory
	UUID  string // the GPU's UUID, "GPU-…"; empty if it is unknown, and for host memory
}

// The Want constants are the bits of Open.Want and Create.Want.
const (
	// WantBuffered asks for a file descriptor that uses the page cache, and WantDirect for one with O_DIRECT.
	WantBuffered uint8 = 1 << iota
	WantDirect
	// WantInline asks for the content inside the reply, without descriptors, if the store keeps it with the metadata.
	WantInline
	// WantSums asks for the checksums of the blocks in the granted range. If the N of an OpenItem is -1, WantSums
	// asks for the checksums up to the end of the object. A reply holds at most MaxSums checksums for each object.
	WantSums
	// WantStat asks only for the object's size, ETag and other metadata, so that the server opens no handle.
	WantStat
)

// OpenItem is one object of an Open request.
type OpenItem struct {
	Bucket, Key, Version string
	// Off and N are the range of the object, in bytes, that the client transfers first. If N is -1, the range extends
	// to the end of the object, but has at most MaxTransferSize bytes. The reply to Open contains the granted range.
	// The client announces transfers beyond the granted range with Move.
	Off, N int64
}

// Open asks the server to open all objects in Items in one round trip. The server answers an Open with one or more
// Opened messages, each with some of the items, in order. If one object of an Open cannot be opened, the others are
// still opened.
type Open struct {
	Want   uint8
	Device Device
	Items  []OpenItem
}

// Opened is a reply to an Open request, with the results of some of its items.
type Opened struct {
	First uint32 // the index in Open.Items of the first item of this reply
	Items []OpenedItem
}

// OpenedItem describes one object that the server opened, or the reason why it did not.
type OpenedItem struct {
	Err *Error // reason why the object was not opened; if not nil, all other fields are empty
	// Handle identifies the open object in later requests. Handle is 0 if the server keeps nothing open, as with
	// inline content or WantStat.
	Handle   uint64
	Size     int64
	ETag     string
	CRC64    uint64 // the CRC-64/NVME of the whole content
	Version  string // the object's version; empty in a bucket without versioning
	Modified time.Time
	// Off and N are the range that the server granted for the first transfer.
	Off, N int64
	// Inline is the whole content of the object, if HasInline is true. The server sends small content inside the
	// reply if the client set WantInline.
	Inline    []byte
	HasInline bool
	// Has holds the bits WantBuffered and WantDirect for the kinds of descriptors that the server sent for this item.
	// A packet carries the descriptors in the order of its items. If an item has two descriptors, the buffered one
	// comes first.
	Has uint8
	// Refused is the reason why the server sent no O_DIRECT descriptor. Refused is empty if the server sent an
	// O_DIRECT descriptor, or if the client did not ask for one.
	Refused string
	// SumsFirst is the index of the block of which Sums[0] is the checksum. The client asks for missing checksums
	// with the message Sums.
	SumsFirst int64
	Sums      []uint64
	// Served is "hit" or "stale" if another S3 server keeps the object. Served, Age and Verified are empty for other
	// objects.
	Served   string
	Age      int64  // seconds since the other S3 server was asked about the object
	Verified string // how the content was compared
}

// Range is the N bytes of an object or draft that begin at offset Off.
type Range struct{ Off, N int64 }

// Move announces the ranges of an open object or a draft that the client is going to transfer. Each range of a Move
// is one transfer of at most MaxTransferSize bytes. A range behind the end of a draft that grows raises the largest
// size of the draft. The server answers a Move with Ack.
type Move struct {
	Handle uint64
	Device Device
	Ranges []Range
}

// Sums is a request for the checksums of N blocks of an object, from block First on. The server answers a Sums with
// SumsReply, which may hold fewer than N checksums.
type Sums struct {
	Handle   uint64
	First, N int64
}

// SumsReply is the reply to a Sums request, with checksums of blocks.
type SumsReply struct {
	First int64
	Sums  []uint64
}

// Report tells the server, for its metrics, how many bytes a client moved in one stage of its transfers.
type Report struct {
	Write  bool
	Device string // "cuda:0", "host"
	// Route is a route's name as in transfer reports, such as "page_cache", "direct", "cufile_p2p" or "socket". Route
	// is empty for a stage without a route.
	Route string
	Stage string // "read", "copy", "write"
	Bytes int64
	Time  time.Duration
}

// Close closes handles and delivers transfer reports. The server answers a Close with Ack.
type Close struct {
	Handles []uint64
	Reports []Report
}

// Pair is one entry of user metadata, a name and its value.
type Pair struct{ Name, Value string }

// Create begins a draft, a new object that the client writes. The server answers a Create with Created.
type Create struct {
	Bucket, Key string
	Size        int64 // the largest size that the object may get, in bytes
	Device      Device
	Want        uint8 // WantBuffered, WantDirect
	ContentType string
	Metadata    []Pair
	IfMatch     string
	IfNoneMatch string
	// Source is the handle of an open object of the connection, or 0. The draft begins as a private copy of that object,
	// and Grows must be set. Without a content type and metadata of its own, the new object keeps those of the source.
	Source uint64
	// Grows makes the descriptors readable too. A draft that grows is as long as its source, or empty without one, and a
	// Move beyond Size raises Size.
	Grows bool
}

// Created is the reply to Create.
type Created struct {
	Handle  uint64
	Has     uint8
	Refused string
	Path    string // the path of the draft's file on the server, for error messages
	// Copied is the number of bytes that the server copied from the source. Copied is 0 if the file system lets both
	// files share their blocks.
	Copied int64
}

// AddSums sends block checksums of a draft before Commit, if there are more checksums than one Commit can hold. The
// server answers an AddSums with Ack.
type AddSums struct {
	Handle uint64
	First  int64
	Sums   []uint64
}

// Commit publishes a draft as an object. The client closes its descriptors of the draft before it sends Commit. The
// server answers a Commit with Committed.
type Commit struct {
	Handle  uint64
	Size    int64
	CRC64   uint64
	First   int64 // the block index of Sums[0]; AddSums has sent the checksums of earlier blocks
	Sums    []uint64
	Reports []Report
}

// Committed is the reply to a successful Commit, and means that the object is durable and visible.
type Committed struct {
	ETag, Version string
	Modified      time.Time
}

// Abort deletes a draft completely. The server answers an Abort with Ack.
type Abort struct{ Handle uint64 }

// List asks for one page of a bucket's listing. The server answers a List with Listed.
type List struct {
	Bucket, Prefix, Delimiter, After string
	Limit                            uint32
}

// ListedItem is one object in a page of a listing.
type ListedItem struct {
	Key, ETag string
	Size      int64
	Modified  time.Time
}

// Listed is the reply to List. A page may have fewer entries than List.Limit, even if more pages follow.
type Listed struct {
	Items     []ListedItem
	Prefixes  []string
	Truncated bool
	Next      string // the value of List.After that asks for the next page
}

// Ping keeps an idle connection open. The server answers a Ping with Ack.
type Ping struct{}

// Ack is the reply to a request that succeeded and returns no data.
type Ack struct{}

// Error is the reply to a request that failed.
type Error struct {
	Kind    uint8  // an errs.Kind
	Code    string // one of the error codes of this package, such as "NoSuchKey"
	Message string
	Fix     string
}
