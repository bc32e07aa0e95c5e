// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/nebulaio/nebulaio"
)

// A system keeps the headers of models that were opened, and callers may change what they were given.
func TestCallersCannotChangeAKeptHeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	header := `{"__metadata__":{"a":"b"},"s":{"dtype":"U8","shape":[],"data_offsets":[0,1]},` +
		`"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header+".."...)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	sys := newSystem(t, nebulaio.Options{})
	first := openSource(t, sys, path, nebulaio.SourceOptions{})
	for _, h := range first.Headers() {
		h.Metadata["planted"] = "yes"
		for _, x := range h.Tensors[1:] {
			x.Shape[0] = -7
		}
	}
	for _, x := range first.Tensors()[1:] {
		x.Shape[0] = -7
	}
	second := openSource(t, sys, path, nebulaio.SourceOptions{})
	if second.Metadata()["planted"] != "" {
		t.Error("metadata of a caller came back")
	}
	for i, x := range second.Tensors() {
		if i == 0 {
			if x.Shape == nil || second.Headers()[0].Tensors[0].Shape == nil {
				t.Error("a scalar has no shape, expected an empty one")
			}
		} else if x.Shape[0] < 0 {
			t.Errorf("the shape of a caller came back: %+v", x)
		}
	}
}
