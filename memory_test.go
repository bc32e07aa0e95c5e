// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// hugeModel writes a model of 8 TiB that takes no space.
func hugeModel(t *testing.T) string {
	t.Helper()
	const size = int64(8) << 40
	header := fmt.Sprintf(`{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, size, size)
	path := filepath.Join(t.TempDir(), "huge.safetensors")
	content := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	if err := os.WriteFile(path, append(content, header...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(8+len(header))+size); err != nil {
		t.Skipf("no sparse file of 8 TiB: %v", err)
	}
	return path
}

func TestMemoryThatIsNotThereIsRefused(t *testing.T) {
	sys := open(t, nebulaio.Options{Devices: "off"})
	refused := func(what string, err error) {
		t.Helper()
		var e *nebulaio.Error
		if !errors.As(err, &e) || e.Kind != errs.NoMemory || !strings.Contains(err.Error(), "are needed") ||
			!strings.Contains(err.Error(), "available") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := sys.Alloc(t.Context(), "host", 32<<40)
	refused("32 TiB", err)
	m, err := sys.Load(t.Context(), hugeModel(t), nebulaio.LoadOptions{Device: "host"})
	if err == nil {
		m.Free()
	}
	refused("a model of 8 TiB", err)
	// Many that fit alone are refused together.
	var held []*nebulaio.Memory
	for range 1 << 12 {
		b, err := sys.Alloc(t.Context(), "host", 16<<30)
		if err != nil {
			refused("one of many", err)
			break
		}
		held = append(held, b)
	}
	if len(held) == 1<<12 {
		t.Error("64 TiB were given in pieces of 16 GiB")
	}
	for _, b := range held {
		if err := b.Free(); err != nil {
			t.Error(err)
		}
	}
}
