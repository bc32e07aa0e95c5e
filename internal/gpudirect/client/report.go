// SPDX-License-Identifier: Apache-2.0

package client

import "github.com/nebulaio/nebulaio/report"

// The ways that content comes and goes.
const (
	ViaDoor = "door"
	ViaHTTP = "http"
)

// Report says how a read or write of objects went: what was moved, by which
// door, and everything that the engine tells of the bytes.
type Report struct {
	Op      string `json:"op"` // "read" or "write"
	Bucket  string `json:"bucket"`
	Key     string `json:"key"`
	Version string `json:"version,omitempty"`
	ETag    string `json:"etag"`
	Size    int64  `json:"size"` // of the whole object; of a batch, of all together
	Via     string `json:"via"`  // "door" or "http"
	// OpenSeconds is from the call to the first byte that could be moved;
	// CommitSeconds from the last byte written to the object being durable. Neither is part of Seconds.
	OpenSeconds   float64 `json:"open_seconds"`
	CommitSeconds float64 `json:"commit_seconds,omitempty"`
	// Inline says that the content came inside the door's reply (route "socket").
	Inline bool `json:"inline,omitempty"`
	// Objects tells of each object of a batch; nil for a single one.
	Objects []ObjectReport `json:"objects,omitempty"`
	Network *NetworkReport `json:"network,omitempty"` // nil: nothing went over HTTP
	report.Report
}

// ObjectReport is one object of a batch.
type ObjectReport struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
	ETag   string `json:"etag,omitempty"`
	Size   int64  `json:"size"`
	Bytes  int64  `json:"bytes"` // delivered
	Inline bool   `json:"inline,omitempty"`
	Error  string `json:"error,omitempty"`
}

// NetworkReport is what HTTP cost.
type NetworkReport struct {
	Requests    int64 `json:"requests"`
	Retries     int64 `json:"retries"`
	Connections int   `json:"connections"`
}

// Status is what a client knows of its server.
type Status struct {
	Endpoint string `json:"endpoint"`
	Store    string `json:"store,omitempty"`
	// Door is the socket in use; empty where HTTP is used, and then Refusal says why.
	Door     string          `json:"door,omitempty"`
	Refusal  *report.Refusal `json:"refusal,omitempty"`
	Settings *Settings       `json:"settings,omitempty"`
	Error    string          `json:"error,omitempty"` // why nothing is possible
	Counters Counters        `json:"counters"`
}

// Settings are those of the server's greeting.
type Settings struct {
	BufferPoolSize  int64    `json:"buffer_pool_size"`
	MaxTransferSize int64    `json:"max_transfer_size"`
	QueueDepth      int      `json:"queue_depth"`
	Async           bool     `json:"enable_async"`
	P2P             bool     `json:"enable_p2p"`
	Devices         []uint32 `json:"device_ids"`
	Writes          bool     `json:"writes"`
	WritesWhy       string   `json:"writes_refused,omitempty"`
	Notes           []string `json:"notes,omitempty"` // what the server wants this client to know
}

// Counters count what a client has done since it was made.
type Counters struct {
	Connections   int64 `json:"connections"` // to the door, made so far
	DoorReads     int64 `json:"door_reads"`
	DoorWrites    int64 `json:"door_writes"`
	InlineReads   int64 `json:"inline_reads"`
	HTTPReads     int64 `json:"http_reads"`
	HTTPWrites    int64 `json:"http_writes"`
	BytesRead     int64 `json:"bytes_read"`
	BytesWritten  int64 `json:"bytes_written"`
	HandlesHeld   int64 `json:"handles_held"`
	Reconnections int64 `json:"reconnections"`
}
