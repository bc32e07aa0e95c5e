// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	manifestVersion = 1
	// MostManifest is the largest size of a manifest in bytes. A manifest of a million tensors has about 200 MB.
	MostManifest = 512 << 20
	mostFiles    = 1 << 20
	mostItems    = 8 << 20
	mostTensor   = 4096 // bytes of the name of a tensor
	mostRank     = 64   // dimensions of a tensor
	mostWorld    = 1 << 24
	mostStep     = 999_999_999_999_999_999
)

// Manifest describes one complete checkpoint: its files with their checksums, and where the tensors are in the files.
type Manifest struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`     // 16 hex digits, new for each save
	Format  string    `json:"format"` // "torch-dcp" or "safetensors"
	Created time.Time `json:"created"`
	Step    *int64    `json:"step"` // nil if the save has no step
	World   int       `json:"world"`
	Bytes   int64     `json:"bytes"` // of all data files
	// Metadata is .metadata, or the metadata of one rank. For .safetensors files it is the index, or empty if there is
	// none.
	Metadata FileSum `json:"metadata"`
	Files    files   `json:"files"`
	Items    items   `json:"items"`
}

// FileSum names a file of a checkpoint, with its size in bytes and its checksum.
type FileSum struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	// CRC64 is the CRC-64/NVME of the whole file, 16 hex digits; empty if the file was written without checksums.
	CRC64 string `json:"crc64nvme"`
}

// Item is one part of a tensor, or one pickled value, in a data file.
type Item struct {
	Tensor string  `json:"tensor"`
	File   int     `json:"file"`   // position in Manifest.Files
	Offset int64   `json:"offset"` // of the first byte of the content in the file
	Size   int64   `json:"size"`   // of the content in bytes
	DType  string  `json:"dtype"`  // such as "BF16", or "bytes" for a pickled value
	Shape  []int64 `json:"shape"`
	At     []int64 `json:"at"` // where the part begins in the whole tensor
}

// files and items check each entry when it is decoded, so that a hostile manifest fails early and not after it has
// filled the memory.
type (
	files []FileSum
	items []Item
)

// UnmarshalJSON decodes and checks the files.
func (f *files) UnmarshalJSON(b []byte) error {
	seen := map[string]bool{}
	return decodeList(b, mostFiles, "files", func(i int, one FileSum) error {
		if why := badName(one.Name); why != "" {
			return fmt.Errorf("files[%d]: the name %.80q %s", i, one.Name, why)
		}
		if seen[one.Name] {
			return fmt.Errorf("files[%d]: the name %q is given twice", i, one.Name)
		}
		if err := one.check(); err != nil {
			return fmt.Errorf("files[%d], %s: %w", i, one.Name, err)
		}
		seen[one.Name] = true
		*f = append(*f, one)
		return nil
	})
}

// UnmarshalJSON decodes and checks the items, as far as this is possible without the files.
func (m *items) UnmarshalJSON(b []byte) error {
	return decodeList(b, mostItems, "items", func(i int, one Item) error {
		switch {
		case one.Tensor == "" || len(one.Tensor) > mostTensor:
			return fmt.Errorf("items[%d]: the name of the tensor has %d bytes, expected 1 to %d", i, len(one.Tensor), mostTensor)
		case one.DType == "" || len(one.DType) > 32:
			return fmt.Errorf("items[%d]: the dtype is %.40q, expected one such as BF16 or bytes", i, one.DType)
		case len(one.Shape) > mostRank || len(one.At) > mostRank:
			return fmt.Errorf("items[%d]: a shape has more than %d dimensions", i, mostRank)
		case one.File < 0 || one.Offset < 0 || one.Size < 0:
			return fmt.Errorf("items[%d]: file %d, offset %d and size %d; expected no negative number", i, one.File, one.Offset,
				one.Size)
		}
		*m = append(*m, one)
		return nil
	})
}

// decodeList decodes the entries of a list one by one.
func decodeList[T any](b []byte, most int, name string, take func(int, T) error) error {
	if bytes.Equal(bytes.TrimSpace(b), []byte("null")) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return fmt.Errorf("%s is not a list", name)
	}
	for i := 0; d.More(); i++ {
		if i == most {
			return fmt.Errorf("%s has more than %d entries", name, most)
		}
		var one T
		if err := d.Decode(&one); err != nil {
			return fmt.Errorf("%s[%d]: %w", name, i, err)
		}
		if err := take(i, one); err != nil {
			return err
		}
	}
	return nil
}

func (f FileSum) check() error {
	if f.Size < 0 {
		return fmt.Errorf("the size is %d, expected 0 or more", f.Size)
	}
	if f.CRC64 != "" && !idPattern.MatchString(f.CRC64) {
		return fmt.Errorf("the crc64nvme is %.40q, expected 16 hex digits", f.CRC64)
	}
	return nil
}

// sum returns the checksum of the file. The result ok is false if the manifest has none.
func (f FileSum) sum() (sum uint64, ok bool) {
	sum, err := strconv.ParseUint(f.CRC64, 16, 64)
	return sum, err == nil
}

// is reports whether a file has this content.
func (f FileSum) is(b []byte) bool {
	return f.Size == int64(len(b)) && f.CRC64 == sumText(checksum.Of(b))
}

// sumText returns a checksum in the form of a manifest.
func sumText(sum uint64) string { return fmt.Sprintf("%016x", sum) }

// ParseManifest parses the content of a manifest and checks all names, sizes and offsets. Errors show the parameter
// `name` as the manifest's name. If the content breaks the format, the error is of kind Corrupt. If the version is
// unknown, the error is of kind Unsupported.
func ParseManifest(name string, b []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := parseManifest(name, b, m); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, badManifest(name, err)
	}
	return m, nil
}

// summary has the fields of a manifest that a listing needs.
type summary struct {
	Version  int       `json:"version"`
	ID       string    `json:"id"`
	Format   string    `json:"format"`
	Created  time.Time `json:"created"`
	Step     *int64    `json:"step"`
	World    int       `json:"world"`
	Bytes    int64     `json:"bytes"`
	Metadata FileSum   `json:"metadata"`
	Files    files     `json:"files"`
}

// parseSummary parses a manifest without its items.
func parseSummary(name string, b []byte) (*Manifest, error) {
	var s summary
	if err := parseManifest(name, b, &s); err != nil {
		return nil, err
	}
	m := &Manifest{Version: s.Version, ID: s.ID, Format: s.Format, Created: s.Created, Step: s.Step, World: s.World,
		Bytes: s.Bytes, Metadata: s.Metadata, Files: s.Files}
	if err := m.check(); err != nil {
		return nil, badManifest(name, err)
	}
	return m, nil
}

func badManifest(name string, err error) error {
	return errs.New(errs.Corrupt, "read manifest", name, err.Error()).
		WithFix("the checkpoint cannot be used without its manifest; use another one")
}

// parseManifest decodes exactly one JSON object.
func parseManifest(name string, b []byte, into any) error {
	if len(b) > MostManifest {
		return badManifest(name, fmt.Errorf("has %d bytes, expected at most %d", len(b), MostManifest))
	}
	var version struct {
		Version json.Number `json:"version"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&version); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the file is truncated")
		}
		return badManifest(name, err)
	}
	if v := version.Version.String(); v != strconv.Itoa(manifestVersion) {
		return errs.New(errs.Unsupported, "read manifest", name, fmt.Sprintf("has version %.20q, expected %d", v,
			manifestVersion)).WithFix("use a newer nebulaio")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badManifest(name, errors.New("something follows the JSON object"))
	}
	if err := json.Unmarshal(b, into); err != nil {
		return badManifest(name, err)
	}
	return nil
}

// check checks what the fields of a manifest say about each other.
func (m *Manifest) check() error {
	switch {
	case !idPattern.MatchString(m.ID):
		return fmt.Errorf("the id is %.40q, expected 16 hex digits", m.ID)
	case m.Format != manifestFormat && m.Format != manifestTensors:
		return fmt.Errorf("the format is %.40q, expected %s or %s", m.Format, manifestFormat, manifestTensors)
	case m.Step != nil && (*m.Step < 0 || *m.Step > mostStep):
		return fmt.Errorf("the step is %d, expected 0 to %d", *m.Step, int64(mostStep))
	case m.World < 1 || m.World > mostWorld:
		return fmt.Errorf("the world is %d, expected 1 to %d", m.World, mostWorld)
	case m.Format == manifestFormat && m.Metadata.Name != MetadataName && !rankPattern.MatchString(m.Metadata.Name):
		return fmt.Errorf("the name of the metadata is %.40q, expected %s", m.Metadata.Name, MetadataName)
	case m.Format == manifestTensors && m.Metadata.Name != "" &&
		(badName(m.Metadata.Name) != "" || !strings.HasSuffix(m.Metadata.Name, indexSuffix)):
		return fmt.Errorf("the name of the index is %.40q, expected NAME%s", m.Metadata.Name, indexSuffix)
	case m.Metadata.Name != "" && m.Metadata.CRC64 == "":
		return errors.New("the metadata has no crc64nvme")
	}
	if err := m.Metadata.check(); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	var bytes int64
	for _, f := range m.Files {
		if bytes += f.Size; bytes < 0 {
			return errors.New("the files together have more than 2^63 bytes")
		}
	}
	if m.Bytes != bytes {
		return fmt.Errorf("bytes is %d, but the files have %d", m.Bytes, bytes)
	}
	for i, it := range m.Items {
		if it.File >= len(m.Files) {
			return fmt.Errorf("items[%d], %.80q: file %d, expected less than %d", i, it.Tensor, it.File, len(m.Files))
		}
		if size := m.Files[it.File].Size; it.Offset > size || it.Size > size-it.Offset {
			return fmt.Errorf("items[%d], %.80q: %d bytes at offset %d end after the file, which has %d", i, it.Tensor, it.Size,
				it.Offset, size)
		}
	}
	return nil
}
