// SPDX-License-Identifier: Apache-2.0

package report

// Object says how a read or write of objects went: what was moved, which way it went, and the engine's own report.
type Object struct {
	Op      string `json:"op"` // "read" or "write"
	Bucket  string `json:"bucket"`
	Key     string `json:"key"`
	Version string `json:"version,omitempty"`
	ETag    string `json:"etag"`
	Size    int64  `json:"size"` // of the whole object; of a batch, of all objects together
	Via     string `json:"via"`  // "door", "http" or "file"
	// OpenSeconds is the time from the call to the first byte that could be moved. CommitSeconds is the time from the
	// last byte written to the durable object. Neither is part of Seconds.
	OpenSeconds   float64 `json:"open_seconds"`
	CommitSeconds float64 `json:"commit_seconds,omitempty"`
	// Inline says that the content came inside the door's reply.
	Inline bool `json:"inline,omitempty"`
	// Objects describes each object of a batch. It is nil for a single object.
	Objects []BatchObject `json:"objects,omitempty"`
	// Network counts the HTTP requests. It is nil if nothing crossed HTTP.
	Network *HTTP `json:"network,omitempty"`
	Report
}

// BatchObject is one object of a batch.
type BatchObject struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
	ETag   string `json:"etag,omitempty"`
	Size   int64  `json:"size"`
	Bytes  int64  `json:"bytes"` // delivered
	Inline bool   `json:"inline,omitempty"`
	Error  string `json:"error,omitempty"`
}

// HTTP counts what a transfer of objects needed of HTTP.
type HTTP struct {
	Requests    int64 `json:"requests"`
	Retries     int64 `json:"retries"`
	Connections int   `json:"connections"`
}
