// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
)

// ObjectRead asks for an object, or a range of it, in device memory.
type ObjectRead struct {
	Bucket, Key string
	Version     string // empty: the current one
	// IfETag, if not empty, is the ETag that the object must have. If the key was overwritten, the read fails.
	IfETag string
	// Off and Size are the range. A Size of -1 reads to the end of the object.
	Off, Size int64
	// Dst is the destination, and DstSize its room in bytes. A longer range is an error that names both sizes.
	Dst     Ptr
	DstSize int64
	// Device is the device of Dst: "host", "cuda" or "cuda:N". If it is empty, the client's device counts.
	Device string
	Route  Route
	Cache  CachePolicy
	// Stream, with HasStream, is the caller's CUDA stream. Copies begin after the work that is queued on it now.
	Stream    uint64
	HasStream bool
	// NoVerify skips the comparison of each block with the server's checksum.
	NoVerify bool
	// Peers are further devices that receive the same bytes.
	Peers []PeerDestination
}

// PeerDestination is a further destination of a read, on another device.
type PeerDestination struct {
	Device string // "cuda:N"
	Dst    Ptr
}

// request returns the read as the client takes it.
func (r ObjectRead) request() client.Read {
	return client.Read{Bucket: r.Bucket, Key: r.Key, Version: r.Version, IfETag: r.IfETag, Off: r.Off, Size: r.Size,
		Dst: device.Ptr(r.Dst), DstSize: r.DstSize, Device: r.Device, Route: r.Route, Cache: r.Cache, Stream: r.Stream,
		HasStream: r.HasStream, NoVerify: r.NoVerify,
		Peers: convert(r.Peers, func(p PeerDestination) client.Peer {
			return client.Peer{Device: p.Device, Dst: device.Ptr(p.Dst)}
		})}
}

// ObjectWrite asks for an object to be made of device memory.
type ObjectWrite struct {
	Bucket, Key string
	// Src is the address of the content, and Size its length in bytes.
	Src  Ptr
	Size int64
	// Device is the device of Src. If it is empty, the client's device counts.
	Device      string
	Route       Route
	ContentType string
	// Metadata are the user's own names and values (x-amz-meta-…, without the prefix).
	Metadata map[string]string
	// IfMatch is an ETag that the key must have, and IfNoneMatch one that it must not have; "*" means any. The server
	// checks them when the object becomes visible.
	IfMatch, IfNoneMatch string
	// Stream, with HasStream, is the caller's CUDA stream. The source is read after the work that is queued on it now.
	Stream    uint64
	HasStream bool
}

// request returns the write as the client takes it.
func (w ObjectWrite) request() client.Write {
	return client.Write{Bucket: w.Bucket, Key: w.Key, Src: device.Ptr(w.Src), Size: w.Size, Device: w.Device,
		Route:       w.Route,
		ContentType: w.ContentType, Metadata: w.Metadata, IfMatch: w.IfMatch, IfNoneMatch: w.IfNoneMatch,
		Stream: w.Stream, HasStream: w.HasStream}
}

// ObjectInfo describes an object.
type ObjectInfo struct {
	Bucket   string    `json:"bucket"`
	Key      string    `json:"key"`
	Version  string    `json:"version,omitempty"`
	Size     int64     `json:"size"`
	ETag     string    `json:"etag"`
	Modified time.Time `json:"modified"`
	// CRC64 is the CRC-64/NVME of the whole content in base64, as S3 writes it. It is empty if the server does not say.
	CRC64 string `json:"crc64nvme,omitempty"`
	Via   string `json:"via"` // "door" or "http"
}

// ObjectList asks for one page of a bucket.
type ObjectList struct {
	Bucket, Prefix, Delimiter string
	After                     string // ObjectPage.Next of the page before; empty for the first page
	Limit                     int    // largest number of entries; 0 means 1000
}

// ObjectPage is one page of a bucket.
type ObjectPage struct {
	Objects   []ObjectInfo `json:"objects"`
	Prefixes  []string     `json:"prefixes"`
	Truncated bool         `json:"truncated"`      // more entries follow
	Next      string       `json:"next,omitempty"` // ObjectList.After of the next page
}

// ClientStatus is what a client knows of its server.
type ClientStatus struct {
	Endpoint string `json:"endpoint"`
	Store    string `json:"store,omitempty"` // name of the server's store
	// Door is the socket in use. It is empty if HTTP is used, and then Refusal says why.
	Door     string          `json:"door,omitempty"`
	Refusal  *Refusal        `json:"refusal,omitempty"`
	Settings *ServerSettings `json:"settings,omitempty"` // nil without a door
	Error    string          `json:"error,omitempty"`    // why nothing is possible
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
	Writes          bool     `json:"writes"`                   // whether the door takes writes
	WritesWhy       string   `json:"writes_refused,omitempty"` // why it does not
	Notes           []string `json:"notes,omitempty"`          // messages of the server for this client
}

// ClientCounters count what a client has done since it was made.
type ClientCounters struct {
	Connections   int64 `json:"connections"` // to the door
	DoorReads     int64 `json:"door_reads"`
	DoorWrites    int64 `json:"door_writes"`
	InlineReads   int64 `json:"inline_reads"`
	HTTPReads     int64 `json:"http_reads"`
	HTTPWrites    int64 `json:"http_writes"`
	BytesRead     int64 `json:"bytes_read"`
	BytesWritten  int64 `json:"bytes_written"`
	HandlesHeld   int64 `json:"handles_held"` // objects that the door holds open for this client
	Reconnections int64 `json:"reconnections"`
}

func statusOf(s client.Status) ClientStatus {
	return ClientStatus{Endpoint: s.Endpoint, Store: s.Store, Door: s.Door, Refusal: s.Refusal,
		Settings: (*ServerSettings)(s.Settings), Error: s.Error, Counters: ClientCounters(s.Counters)}
}
