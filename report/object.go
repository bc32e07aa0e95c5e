// SPDX-License-Identifier: Apache-2.0

package report

// Object describes a read or write of objects: the object, the kind of connection that was used, and the engine's
// report.
type Object struct {
	Op      string `json:"op"` // "read" or "write"
	Bucket  string `json:"bucket"`
	Key     string `json:"key"`
	Version string `json:"version,omitempty"`
	ETag    string `json:"etag"`
	Size    int64  `json:"size"` // size in bytes of the whole object, or of all objects of a batch together
	Via     string `json:"via"`  // how the bytes were moved: "door", "http" or, for a local file, "file"
	// OpenSeconds is the time from the call of the read or write until the transfer of bytes could begin.
	// CommitSeconds is the time from the last written byte until the object was durable. Report.Seconds includes
	// neither OpenSeconds nor CommitSeconds.
	OpenSeconds   float64 `json:"open_seconds"`
	CommitSeconds float64 `json:"commit_seconds,omitempty"`
	// Inline is true if the door sent the content inside its reply, and no file was read.
	Inline bool `json:"inline,omitempty"`
	// Objects describes each object of a batch. Objects is nil for a single object.
	Objects []BatchObject `json:"objects,omitempty"`
	// Network counts the HTTP requests of the read or write. Network is nil if no byte of the content came or went by
	// HTTP.
	Network *HTTP `json:"network,omitempty"`
	Report
}

// BatchObject describes one object of a batch.
type BatchObject struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
	ETag   string `json:"etag,omitempty"`
	Size   int64  `json:"size"`
	Bytes  int64  `json:"bytes"` // number of bytes delivered to the device
	Inline bool   `json:"inline,omitempty"`
	Error  string `json:"error,omitempty"`
}

// HTTP counts the HTTP requests, retries and connections of a transfer of objects.
type HTTP struct {
	Requests    int64 `json:"requests"`
	Retries     int64 `json:"retries"`
	Connections int   `json:"connections"`
}
