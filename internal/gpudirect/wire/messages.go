// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

// Hello is the client's first message.
type Hello struct {
	Min, Max uint16 // versions that it speaks
	Agent    string // the program, for logs
}

// Challenge is the server's answer to Hello.
type Challenge struct {
	Version uint16 // that is spoken from now on
	Store   string // identity of the store, as the S3 endpoint's discovery tells it too
	Nonce   [NonceSize]byte
}

// The ways to name the server's end of a connection. Each alone shows a relay.
const (
	// BindSocket names it by the inode number of the server's socket, which the client asks the kernel for (unix_diag).
	BindSocket uint8 = 1
	// BindProcess names it by the pidfs inode number of the process that listens (SO_PEERPIDFD, Linux 6.9).
	BindProcess uint8 = 2
)

// ChallengeTime is how long a client waits for the Challenge. Inode numbers of sockets have 32 bits: within this time
// they cannot come round.
const ChallengeTime = 5 * time.Second

// Binding names the server's end of a connection as one side sees it.
type Binding struct {
	Kind uint8 // BindSocket or BindProcess
	ID   uint64
}

// Proof says who the client is; see ClientMAC.
type Proof struct {
	AccessKey string
	Nonce     [NonceSize]byte
	Binding   Binding // the server's end, as the client's kernel names it
	MAC       [MACSize]byte
}

// Greeting ends the handshake. It proves who the server is (see ServerMAC) and says what the server allows. The
// settings are defaults for the client, except those that the server enforces.
type Greeting struct {
	MAC [MACSize]byte
	// Settings of the server's configuration, gpudirect.*.
	BufferPoolSize  int64
	MaxTransferSize int64 // enforced: the largest range of an Open or Move, in bytes
	QueueDepth      uint32
	Async           bool
	P2P             bool
	// Devices are the GPUs of this host that may be used, by index; none means all. Enforced.
	Devices []uint32
	// Writes says whether objects may be created through the door; else WritesWhy says why not.
	Writes    bool
	WritesWhy string
	// Bounds of this connection.
	MaxHandles uint32
	MaxDraft   int64         // bytes of all drafts together
	Idle       time.Duration // a connection that is silent for longer is ended; Ping keeps it
	// Notes say in words what this client should know of the server, such as a protection that is missing.
	Notes []string
}

// Device is where the client's memory lies.
type Device struct {
	Index int32  // as the client counts; -1 for host memory
	UUID  string // "GPU-…", empty where it is not known or for host memory
}

// What an Open wants, as bits.
const (
	// WantBuffered and WantDirect ask for a description through and past the page cache.
	WantBuffered uint8 = 1 << iota
	WantDirect
	// WantInline takes content that lies with the metadata inside the reply, instead of descriptors.
	WantInline
	// WantSums asks for the sums of the blocks of the range (where N is -1: up to the end of the object), as many as the
	// reply has room for.
	WantSums
	// WantStat asks for the description of the object alone: no handle is made.
	WantStat
)

// OpenItem is one object of an Open.
type OpenItem struct {
	Bucket, Key, Version string
	// Off and N are the range that the client transfers first. An N of -1 asks for all up to the end of the object, cut to
	// MaxTransferSize: the reply has the range that was granted. The client asks for the rest with Move.
	Off, N int64
}

// Open asks for objects, all in one round trip. The answer is one Opened or more, each with some of the items, in
// order. An item that fails does not affect the others.
type Open struct {
	Want   uint8
	Device Device
	Items  []OpenItem
}

// Opened answers an Open.
type Opened struct {
	First uint32 // place in the request of the first item here
	Items []OpenedItem
}

// OpenedItem is one object that was opened, or the reason why not.
type OpenedItem struct {
	Err *Error // not nil: the object was not opened, and the rest is empty
	// Handle names it in later requests; 0 where nothing is held (inline content, WantStat).
	Handle   uint64
	Size     int64
	ETag     string
	CRC64    uint64 // of the whole content
	Version  string // empty in a bucket without versions
	Modified time.Time
	// Off and N are the range that was granted.
	Off, N int64
	// Inline is the whole content, where it was asked for and lies with the metadata.
	Inline    []byte
	HasInline bool
	// Has tells which descriptors come with the packet, in this order, items in order: WantBuffered, WantDirect.
	Has uint8
	// Refused says why WantDirect was not granted; empty where it was or was not asked for.
	Refused string
	// SumsFirst is the block that Sums begin with; blocks that are not there are asked for with Sums.
	SumsFirst int64
	Sums      []uint64
}

// Range is N bytes from Off.
type Range struct{ Off, N int64 }

// Move names the ranges of an open object or a draft that the client is going to transfer. Each range is one transfer,
// of at most MaxTransferSize bytes. The answer is Ack.
type Move struct {
	Handle uint64
	Device Device
	Ranges []Range
}

// Sums asks for the checksums of N blocks. The answer is SumsReply, which may have fewer.
type Sums struct {
	Handle   uint64
	First, N int64
}

// SumsReply answers Sums.
type SumsReply struct {
	First int64
	Sums  []uint64
}

// Report tells the server how many bytes a client has moved, for the metrics.
type Report struct {
	Write  bool
	Device string // "cuda:0", "host"
	// as in transfer reports: "page_cache", "direct", "cufile_p2p", "socket" …; empty for a stage that no route has
	Route string
	Stage string // "read", "copy", "write"
	Bytes int64
	Time  time.Duration
}

// Close closes handles. The answer is Ack.
type Close struct {
	Handles []uint64
	Reports []Report
}

// Pair is a name and a value.
type Pair struct{ Name, Value string }

// Create asks for a new object that the client will write; it is answered by Created.
type Create struct {
	Bucket, Key string
	Size        int64 // at most so many bytes will be written
	Device      Device
	Want        uint8 // WantBuffered, WantDirect
	ContentType string
	Metadata    []Pair
	IfMatch     string
	IfNoneMatch string
}

// Created answers Create.
type Created struct {
	Handle  uint64
	Has     uint8
	Refused string
	Path    string // of the file, for messages
}

// AddSums sends checksums of a draft ahead of Commit, if there are more than one Commit can hold. The answer is Ack.
type AddSums struct {
	Handle uint64
	First  int64
	Sums   []uint64
}

// Commit publishes a draft. The client has closed its files of the draft before. The answer is Committed.
type Commit struct {
	Handle  uint64
	Size    int64
	CRC64   uint64
	First   int64 // block of the first sum here; those before came with AddSums
	Sums    []uint64
	Reports []Report
}

// Committed answers Commit: the object is durable and visible.
type Committed struct {
	ETag, Version string
	Modified      time.Time
}

// Abort ends a draft without a trace. The answer is Ack.
type Abort struct{ Handle uint64 }

// List asks for one page of a bucket; it is answered by Listed.
type List struct {
	Bucket, Prefix, Delimiter, After string
	Limit                            uint32
}

// ListedItem is one object of a page.
type ListedItem struct {
	Key, ETag string
	Size      int64
	Modified  time.Time
}

// Listed answers List. It may have fewer entries than were asked for.
type Listed struct {
	Items     []ListedItem
	Prefixes  []string
	Truncated bool
	Next      string // After of the next page
}

// Ping keeps a silent connection open. The answer is Ack.
type Ping struct{}

// Ack answers requests that have nothing else to say.
type Ack struct{}

// Error says why a request failed.
type Error struct {
	Kind    uint8  // an errs.Kind
	Code    string // for programs: "NoSuchKey", "AccessDenied", "WriterLeft" …
	Message string
	Fix     string
}
