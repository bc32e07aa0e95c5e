// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
)

// ObjectRead is a request to read an object, or a range of an object, into device memory.
type ObjectRead struct {
	Bucket, Key string
	Version     string // version of the object; empty means the current version
	// IfETag, if not empty, is the ETag that the object must have. If the object has another ETag, the read fails.
	IfETag string
	// Off and Size are the offset and length of the range in bytes. A Size of -1 means up to the end of the object.
	Off, Size int64
	// Dst is the address of the destination, and DstSize its size in bytes. If the range is longer than DstSize, the
	// read fails.
	Dst     Ptr
	DstSize int64
	// Device is the device of the memory at Dst: "host", "cuda" or "cuda:N"; empty means ClientOptions.Device.
	Device string
	Route  Route
	Cache  CachePolicy
	// Stream is a CUDA stream of the caller and is used if HasStream is set. Copies begin after the work that is
	// already queued on the stream.
	Stream    uint64
	HasStream bool
	// If NoVerify is set, the blocks that are read are not compared with the server's checksums.
	NoVerify bool
	// Peers are further destinations, on other devices, that receive a copy of the bytes that are read.
	Peers []PeerDestination
}

// PeerDestination is a further destination of a read, on another device.
type PeerDestination struct {
	Device string // "cuda:N"
	Dst    Ptr
}

// request converts the read to a request of the internal client.
func (r ObjectRead) request() client.Read {
	return client.Read{Bucket: r.Bucket, Key: r.Key, Version: r.Version, IfETag: r.IfETag, Off: r.Off, Size: r.Size,
		Dst: device.Ptr(r.Dst), DstSize: r.DstSize, Device: r.Device, Route: r.Route, Cache: r.Cache, Stream: r.Stream,
		HasStream: r.HasStream, NoVerify: r.NoVerify,
		Peers: convert(r.Peers, func(p PeerDestination) client.Peer {
			return client.Peer{Device: p.Device, Dst: device.Ptr(p.Dst)}
		})}
}

// ObjectWrite is a request to write an object from device memory.
type ObjectWrite struct {
	Bucket, Key string
	// Src is the address of the content in device memory, and Size its length in bytes.
	Src  Ptr
	Size int64
	// Device is the device of the memory at Src; empty means ClientOptions.Device.
	Device      string
	Route       Route
	ContentType string
	// Metadata is the user-defined metadata of the object: names without the prefix x-amz-meta-, and values.
	Metadata map[string]string
	// IfMatch, if not empty, is the ETag that the existing object with the same key must have. IfNoneMatch, if not
	// empty, is an ETag that the existing object must not have. If IfNoneMatch is "*", no object with the same key may
	// exist. The server checks IfMatch and IfNoneMatch when the new object becomes visible.
	IfMatch, IfNoneMatch string
	// Stream is a CUDA stream of the caller and is used if HasStream is set. The source memory is read after the work
	// that is already queued on the stream.
	Stream    uint64
	HasStream bool
}

// request converts the write to a request of the internal client.
func (w ObjectWrite) request() client.Write {
	return client.Write{Bucket: w.Bucket, Key: w.Key, Src: device.Ptr(w.Src), Size: w.Size, Device: w.Device,
		Route:       w.Route,
		ContentType: w.ContentType, Metadata: w.Metadata, IfMatch: w.IfMatch, IfNoneMatch: w.IfNoneMatch,
		Stream: w.Stream, HasStream: w.HasStream}
}

// ObjectInfo describes an object of a bucket.
type ObjectInfo struct {
	Bucket   string    `json:"bucket"`
	Key      string    `json:"key"`
	Version  string    `json:"version,omitempty"`
	Size     int64     `json:"size"`
	ETag     string    `json:"etag"`
	Modified time.Time `json:"modified"`
	// CRC64 is the CRC-64/NVME checksum of the whole content in base64, as in S3. CRC64 is empty if the server does
	// not send this checksum.
	CRC64 string `json:"crc64nvme,omitempty"`
	Via   string `json:"via"` // "door" or "http"
}

// ObjectList is a request for one page of a bucket's listing.
type ObjectList struct {
	Bucket, Prefix, Delimiter string
	After                     string // value of ObjectPage.Next from the previous page; empty for the first page
	Limit                     int    // largest number of entries in the page; 0 means 1000
}

// ObjectPage is one page of a bucket's listing.
type ObjectPage struct {
	Objects   []ObjectInfo `json:"objects"`
	Prefixes  []string     `json:"prefixes"`
	Truncated bool         `json:"truncated"`      // true if the listing has more pages
	Next      string       `json:"next,omitempty"` // value of ObjectList.After for the next page
}

// ClientStatus describes a client's connection to its server.
type ClientStatus struct {
	Endpoint string `json:"endpoint"`
	Store    string `json:"store,omitempty"` // name of the server's store
	// Door is the path of the door's socket. If Door is empty, the client uses HTTP, and Refusal gives the reason.
	Door     string          `json:"door,omitempty"`
	Refusal  *Refusal        `json:"refusal,omitempty"`
	Settings *ServerSettings `json:"settings,omitempty"` // settings of the server; nil if the client has no door
	Error    string          `json:"error,omitempty"`    // error text if the client cannot reach the server
	Counters ClientCounters  `json:"counters"`
}

// ServerSettings are the settings that a server's door announces.
type ServerSettings struct {
	BufferPoolSize  int64    `json:"buffer_pool_size"`
	MaxTransferSize int64    `json:"max_transfer_size"`
	QueueDepth      int      `json:"queue_depth"`
	Async           bool     `json:"enable_async"`
	P2P             bool     `json:"enable_p2p"`
	Devices         []uint32 `json:"device_ids"`
	Writes          bool     `json:"writes"`                   // true if the door accepts writes
	WritesWhy       string   `json:"writes_refused,omitempty"` // why the door refuses writes; empty if Writes is true
	Notes           []string `json:"notes,omitempty"`          // messages from the server to the client
}

// ClientCounters count the operations of a client since it was made.
type ClientCounters struct {
	Connections   int64 `json:"connections"` // number of connections made to the door
	DoorReads     int64 `json:"door_reads"`
	DoorWrites    int64 `json:"door_writes"`
	InlineReads   int64 `json:"inline_reads"`
	HTTPReads     int64 `json:"http_reads"`
	HTTPWrites    int64 `json:"http_writes"`
	BytesRead     int64 `json:"bytes_read"`
	BytesWritten  int64 `json:"bytes_written"`
	HandlesHeld   int64 `json:"handles_held"` // number of objects and drafts that the client has open at the door
	Reconnections int64 `json:"reconnections"`
}

func statusOf(s client.Status) ClientStatus {
	return ClientStatus{Endpoint: s.Endpoint, Store: s.Store, Door: s.Door, Refusal: s.Refusal,
		Settings: (*ServerSettings)(s.Settings), Error: s.Error, Counters: ClientCounters(s.Counters)}
}
