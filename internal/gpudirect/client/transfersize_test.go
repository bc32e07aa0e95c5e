// SPDX-License-Identifier: Apache-2.0

package client

import (
	"os"
	"strings"
	"testing"
)

// TestTheDoorsTransferSizeBoundsRangesAlone: gpudirect.max_transfer_size bounds what one range of a request may be, and
// not how large the engine's copies are, nor its staging. docs/gpudirect.md said otherwise.
func TestTheDoorsTransferSizeBoundsRangesAlone(t *testing.T) {
	r := newRig(t, true)
	r.settings.MaxTransferSize = 64 << 10
	r.stop()
	r.serve()
	c := r.client()
	data := content(1, 9<<20)
	r.put("large", data)
	_, rep, err := r.read(c, Read{Key: "large", Size: -1, Device: "cuda:0"}, len(data))
	if err != nil || rep.Via != ViaDoor {
		t.Fatalf("%v, via %s", err, rep.Via)
	}
	if s := c.Status(t.Context()); s.Settings.MaxTransferSize != 64<<10 {
		t.Fatalf("the door said %d", s.Settings.MaxTransferSize)
	}
	if rep.Engine.ChunkSize <= 64<<10 {
		t.Errorf("copies of %d bytes: the door's setting bounds them, and docs/gpudirect.md says that it does not",
			rep.Engine.ChunkSize)
	}
	page, err := os.ReadFile("../../../docs/gpudirect.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(page), "\n") {
		if strings.HasPrefix(line, "| `gpudirect.max_transfer_size`") &&
			!strings.Contains(line, "does not bound the engine's copies") {
			t.Errorf("docs/gpudirect.md: %s", line)
		}
	}
}
