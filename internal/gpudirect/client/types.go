// SPDX-License-Identifier: Apache-2.0

package client

import (
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

// Peer is a further destination of a read, on another device.
type Peer struct {
	Device string // "cuda:N"
	Dst    device.Ptr
}

// Read asks for a range of an object in device memory.
type Read struct {
	Bucket, Key string
	Version     string // empty: the current one
	// IfETag, if not empty, is the ETag that the object must have: a key that was
	// overwritten meanwhile is then an error instead of other bytes.
	IfETag string
	// Off and Size are the range; a Size of -1 reads up to the end of the object.
	Off, Size int64
	// Dst is where the bytes go and DstSize how many fit there. An object (or
	// range) that is longer is an error that names both sizes.
	Dst     device.Ptr
	DstSize int64
	// Device is where Dst points: "host", "cuda" or "cuda:N"; empty: the client's.
	Device string
	Route  report.Route
	Cache  report.CachePolicy
	// Stream, with HasStream, is the caller's CUDA stream whose queued work may
	// still use the destination; copies begin after it.
	Stream    uint64
	HasStream bool
	// NoVerify takes the bytes as they come instead of comparing each block with
	// the sum that the server keeps of it.
	NoVerify bool
	// Peers receive the same bytes.
	Peers []Peer
}

// Write asks for an object to be made of device memory.
type Write struct {
	Bucket, Key string
	Src         device.Ptr
	Size        int64
	// Device is where Src points; empty: the client's.
	Device      string
	Route       report.Route
	ContentType string
	// Metadata are the user's own names and values (x-amz-meta-…, without the prefix).
	Metadata map[string]string
	// IfMatch and IfNoneMatch are judged when the object becomes visible: an
	// ETag, or "*" for IfNoneMatch.
	IfMatch, IfNoneMatch string
	// Stream, with HasStream, is the caller's CUDA stream whose queued work may
	// still write the source.
	Stream    uint64
	HasStream bool
	// Sources, if not nil, tile the object in place of Src, Size and Device: a
	// header and tensors of several devices, for one.
	Sources []transfer.Source
	// Streams are, by device, the streams that the sources are ready after.
	Streams map[device.Device]uint64
}

// Info describes an object.
type Info struct {
	Bucket   string    `json:"bucket"`
	Key      string    `json:"key"`
	Version  string    `json:"version,omitempty"`
	Size     int64     `json:"size"`
	ETag     string    `json:"etag"`
	Modified time.Time `json:"modified"`
	// CRC64 is the CRC-64/NVME of the whole content in base64, as S3 writes it;
	// empty where the server does not tell.
	CRC64 string `json:"crc64nvme,omitempty"`
	Via   string `json:"via"` // "door" or "http"
}

// List asks for one page of a bucket.
type List struct {
	Bucket, Prefix, Delimiter string
	After                     string // keys behind this one; Page.Next of the page before
	Limit                     int    // at most so many entries; 0: 1000
}

// Page is a page of a bucket.
type Page struct {
	Objects   []Info   `json:"objects"`
	Prefixes  []string `json:"prefixes"`
	Truncated bool     `json:"truncated"`
	Next      string   `json:"next,omitempty"`
}
