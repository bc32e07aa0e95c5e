// SPDX-License-Identifier: Apache-2.0

package client

import "github.com/nebulaio/nebulaio/report"

// ViaDoor and ViaHTTP are the two ways to reach a server, as Info.Via and reports name them.
const (
	ViaDoor = "door"
	ViaHTTP = "http"
)

// Status has the state of a client's connection to its server, and the client's counters.
type Status struct {
	Endpoint string `json:"endpoint"`
	Store    string `json:"store,omitempty"`
	// Door is the path of the door's socket. If the client uses HTTP, Door is empty and Refusal has the reason.
	Door     string          `json:"door,omitempty"`
	Refusal  *report.Refusal `json:"refusal,omitempty"`
	Settings *Settings       `json:"settings,omitempty"`
	Error    string          `json:"error,omitempty"` // reason why the client cannot use the server at all
	Counters Counters        `json:"counters"`
}

// Settings are the server's settings, as its door sent them at login.
type Settings struct {
	BufferPoolSize  int64    `json:"buffer_pool_size"`
	MaxTransferSize int64    `json:"max_transfer_size"`
	QueueDepth      int      `json:"queue_depth"`
	Async           bool     `json:"enable_async"`
	P2P             bool     `json:"enable_p2p"`
	Devices         []uint32 `json:"device_ids"`
	Writes          bool     `json:"writes"`
	WritesWhy       string   `json:"writes_refused,omitempty"`
	Notes           []string `json:"notes,omitempty"` // warnings of the server to its clients
}

// Counters count the client's connections, reads, writes and bytes since the client was created.
type Counters struct {
	Connections   int64 `json:"connections"` // total of connections made to the door
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
