// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/checkpoint/pickle"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// mostPickle is the largest size of a .metadata that is parsed, in bytes.
const mostPickle = 256 << 20

// stored is one entry of the field storage_data in PyTorch's metadata: a tensor, or a part of one, in a file.
type stored struct {
	tensor string
	file   string
	offset int64
	size   int64
}

// parseMetadata returns where PyTorch's metadata says that the tensors are. No code of the pickle is run. Errors show
// the parameter `name` as the name of the metadata.
func parseMetadata(name string, b []byte) ([]stored, error) {
	bad := func(format string, args ...any) error {
		return errs.New(errs.Corrupt, "read metadata", name, fmt.Sprintf(format, args...))
	}
	if len(b) > mostPickle {
		return nil, errs.New(errs.Unsupported, "read metadata", name, fmt.Sprintf("has %d bytes, expected at most %d", len(b),
			mostPickle))
	}
	v, err := pickle.Parse(name, b)
	if err != nil {
		return nil, err
	}
	o, ok := v.(*pickle.Object)
	if !ok || nameOf(o.Class) != "Metadata" {
		return nil, bad("is the pickle of another value than PyTorch's Metadata")
	}
	data, ok := o.Attribute("storage_data").(*pickle.Dict)
	if !ok {
		return nil, bad("has no storage_data")
	}
	out := make([]stored, 0, len(data.Keys))
	for i, k := range data.Keys {
		key, ok1 := k.(*pickle.Object)
		info, ok2 := data.Values[i].(*pickle.Object)
		if !ok1 || !ok2 {
			return nil, bad("storage_data[%d] is not a pair of MetadataIndex and _StorageInfo", i)
		}
		var s stored
		s.tensor, ok1 = key.Attribute("fqn").(string)
		s.file, ok2 = info.Attribute("relative_path").(string)
		var ok3, ok4 bool
		s.offset, ok3 = info.Attribute("offset").(int64)
		s.size, ok4 = info.Attribute("length").(int64)
		if !ok1 || !ok2 || !ok3 || !ok4 {
			return nil, bad("storage_data[%d] lacks fqn, relative_path, offset or length", i)
		}
		if why := badName(s.file); why != "" {
			return nil, bad("storage_data[%d]: the file name %.80q %s", i, s.file, why)
		}
		if s.offset < 0 || s.size < 0 || s.offset+s.size < 0 {
			return nil, bad("storage_data[%d], %.80q: %d bytes at offset %d", i, s.tensor, s.size, s.offset)
		}
		out = append(out, s)
	}
	return out, nil
}

func nameOf(class any) string {
	if c, ok := class.(*pickle.Class); ok {
		return c.Name
	}
	return ""
}
