// SPDX-License-Identifier: Apache-2.0

// Package image reads and writes the container of a dumped process: many image files of criu as one stream of frames,
// each with a checksum.
//
// All numbers are little-endian. A container begins with the 8 bytes "NEBULAPR", the version 1 as 4 bytes, and 4 zero
// bytes. Frames follow. A frame has a header of 24 bytes and a payload:
//
//	8 bytes  CRC-64/NVME of the rest of the header and the payload
//	4 bytes  kind: 1 file name, 2 data, 3 end of a file, 4 index
//	4 bytes  number of the file, from 0; 0 in an index
//	8 bytes  length of the payload: at most 1 MiB, of an index at most 256 MiB
//
// The payload of an end of file is the file's size, 8 bytes. The frames of several files may alternate. The last frame
// is the index, in JSON. The container ends with a footer of 32 bytes: "NEBULAPE", the offset of the index's header,
// the length of the index's payload, and the CRC-64/NVME of these 24 bytes. Without its footer a container is not
// complete.
package image

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	magic      = "NEBULAPR"
	endMagic   = "NEBULAPE"
	version    = 1
	headerSize = 16 // of the container
	frameSize  = 24 // of the header of a frame
	footerSize = 32

	// FrameData is the largest payload of a frame with data.
	FrameData = 1 << 20
	mostIndex = 256 << 20
	mostName  = 255
)

// kind is the kind of a frame.
type kind uint32

const (
	kindName kind = 1 + iota
	kindData
	kindEnd
	kindIndex
)

// Index describes a container.
type Index struct {
	Version int       `json:"version"`
	Created time.Time `json:"created"`
	// PID, Name and Command are those of the dumped process.
	PID     int    `json:"pid"`
	Name    string `json:"name"`
	Command string `json:"command,omitempty"`
	Tool    string `json:"tool"` // program that made the image files, such as "criu 4.2"
	Machine string `json:"machine"`
	Kernel  string `json:"kernel"`
	// GPU is true if the process used GPUs: it was suspended before the dump and has to be resumed after the restore.
	GPU bool `json:"gpu,omitempty"`
	// OtherPIDs is true if the process lived in another PID namespace: then PID is not the id that it gets again.
	OtherPIDs bool `json:"other_pids,omitempty"`
	// Options are the options of criu that a restore needs too, such as "--tcp-established".
	Options []string `json:"options,omitempty"`
	Files   []File   `json:"files"`
	Bytes   int64    `json:"bytes"` // of all files
}

// File is one image file inside a container.
type File struct {
	Name  string `json:"name"`
	Size  int64  `json:"size"`
	Parts []Part `json:"parts"`
}

// Part is a range of the container that has bytes of a file: the payload of one frame.
type Part struct {
	Off int64 `json:"off"`
	Len int64 `json:"len"`
}

// encodeHeader fills the header of a frame. The payload follows the header in b.
func encodeHeader(b []byte, k kind, file int) {
	binary.LittleEndian.PutUint32(b[8:], uint32(k))
	binary.LittleEndian.PutUint32(b[12:], uint32(file))
	binary.LittleEndian.PutUint64(b[16:], uint64(len(b)-frameSize))
	binary.LittleEndian.PutUint64(b, checksum.Of(b[8:]))
}

// header is the decoded header of a frame.
type header struct {
	sum  uint64
	kind kind
	file uint32
	len  uint64
}

func decodeHeader(b []byte) header {
	return header{binary.LittleEndian.Uint64(b), kind(binary.LittleEndian.Uint32(b[8:])),
		binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint64(b[16:])}
}

// check refuses a header with an impossible length.
func (h header) check() error {
	most := uint64(FrameData)
	switch h.kind {
	case kindName:
		most = mostName
	case kindEnd:
		most = 8
	case kindIndex:
		most = mostIndex
	case kindData:
	default:
		return fmt.Errorf("a frame of kind %d, expected 1 to 4", h.kind)
	}
	if h.len > most {
		return fmt.Errorf("a frame of kind %d with %d bytes, expected at most %d", h.kind, h.len, most)
	}
	return nil
}

// CheckName returns an error if a name cannot be that of an image file.
func CheckName(name string) error {
	if name == "" || len(name) > mostName || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return errs.New(errs.Invalid, "use image file", fmt.Sprintf("%.60q", name),
			fmt.Sprintf("is not the name of an image file; expected 1 to %d bytes without a slash", mostName))
	}
	return nil
}

// damaged returns the error about a damaged container.
func damaged(name string, format string, args ...any) error {
	return errs.New(errs.Corrupt, "read process image", name, fmt.Sprintf(format, args...)).
		WithFix("the image cannot be restored: use another dump of the process")
}
