// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/nebulaio/nebulaio/internal/store/record"
)

func TestAfterIDSkipsWhatIsNotBehind(t *testing.T) {
	ids := []string{"00000000000000000000000000", record.Names{}.Text(1<<60, 5), record.Names{}.Text(1<<63, 5),
		record.Names{}.Text(math.MaxUint64, 9)}
	probes := append(slices.Clone(ids), "", "0", "A", "5", "ZZZZ", "zzz", ids[1][:10], ids[1]+"0", ids[2][:25]+"!")
	for _, p := range probes {
		from := afterID(p)
		for _, id := range ids {
			raw, _ := record.ParseName(id)
			if got, want := bytes.Compare(raw[:], from) >= 0, id > p; got != want {
				t.Errorf("after %q: %q listed is %v, expected %v", p, id, got, want)
			}
		}
	}
}
