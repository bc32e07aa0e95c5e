// SPDX-License-Identifier: Apache-2.0

package client

import "github.com/nebulaio/nebulaio/report"

// The ways that content comes and goes.
const (
	ViaDoor = "door"
	ViaHTTP = "http"
)

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
