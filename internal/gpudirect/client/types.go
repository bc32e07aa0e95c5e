// SPDX-License-Identifier: Apache-2.0

package client

import (
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

// Peer is a further device that receives the same bytes as the destination of a read.
type Peer struct {
	Device string // "cuda:N"
	Dst    device.Ptr
}

// Read describes a read of an object, or of a range of it, into device memory.
type Read struct {
	Bucket, Key string
	Version     string // version of the object; empty means the current version
	// IfETag, if not empty, is the ETag that the object must have. The read fails if the object was overwritten and
	// has another ETag.
	IfETag string
	// Off and Size are the range of the object to read, in bytes. A Size of -1 reads up to the end of the object.
	Off, Size int64
	// Dst is the address of the destination buffer, and DstSize is the size of this buffer in bytes. If the range to
	// read is longer than DstSize, the read fails with kind Invalid.
	Dst     device.Ptr
	DstSize int64
	// Device is the device of Dst: "host", "cuda" or "cuda:N". If Device is empty, the client's default device is
	// used.
	Device string
	Route  report.Route
	Cache  report.CachePolicy
	// Stream, if HasStream is set, is a CUDA stream of the caller. Copies to Dst begin after all work that is queued
	// on Stream, because that work may still use Dst.
	Stream    uint64
	HasStream bool
	// NoVerify turns verification off: blocks are not compared with the server's checksums.
	NoVerify bool
	// Peers are further devices that receive the same bytes as Dst.
	Peers []Peer
}

// Write describes a new object that is written from device memory.
type Write struct {
	Bucket, Key string
	Src         device.Ptr
	Size        int64
	// Device is the device of Src. If Device is empty, the client's default device is used.
	Device      string
	Route       report.Route
	ContentType string
	// Metadata is the user metadata of the object; its names are without the prefix x-amz-meta-.
	Metadata map[string]string
	// IfMatch and IfNoneMatch are conditions on the existing object, each an ETag; IfNoneMatch may be "*". The server
	// checks the conditions when it publishes the object.
	IfMatch, IfNoneMatch string
	// Stream, if HasStream is set, is a CUDA stream of the caller. Src is read after all work that is queued on
	// Stream, because that work may still write to Src.
	Stream    uint64
	HasStream bool
	// Sources, if not nil, are the parts of the object's content in order, and replace Src, Size and Device. Sources
	// can be, for example, a header followed by tensors on several devices.
	Sources []transfer.Source
	// Streams holds one CUDA stream of the caller for each device. The Sources on a device are read after the work
	// that is queued on the device's entry in Streams.
	Streams map[device.Device]uint64
	// Sums makes Move.Sums return the checksums of the object's blocks.
	Sums bool
}

// Info is the metadata of an object.
type Info struct {
	Bucket   string    `json:"bucket"`
	Key      string    `json:"key"`
	Version  string    `json:"version,omitempty"`
	Size     int64     `json:"size"`
	ETag     string    `json:"etag"`
	Modified time.Time `json:"modified"`
	// CRC64 is the CRC-64/NVME of the whole content in base64, as in S3. CRC64 is empty if the server does not report
	// a CRC.
	CRC64 string `json:"crc64nvme,omitempty"`
	Via   string `json:"via"` // "door" or "http"
}

// List describes a request for one page of the listing of a bucket's objects.
type List struct {
	Bucket, Prefix, Delimiter string
	After                     string // The page lists only keys after After; for the next page, After is Page.Next
	Limit                     int    // the largest number of entries in the page; 0 means 1000
}

// Page is one page of the listing of a bucket's objects.
type Page struct {
	Objects   []Info   `json:"objects"`
	Prefixes  []string `json:"prefixes"`
	Truncated bool     `json:"truncated"`
	Next      string   `json:"next,omitempty"`
}
