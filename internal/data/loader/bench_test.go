// SPDX-License-Identifier: Apache-2.0

package loader_test

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkSmallSamples measures what a loader costs beside the bytes: batches of 256 samples of 1 KiB.
func BenchmarkSmallSamples(b *testing.B) {
	r := newRig(b, 4, 4096, func(*rand.Rand) int64 { return 1024 })
	r.options.Columns, r.options.Split.Batch, r.options.Epochs = []int{0}, 256, 0
	l := r.start()
	b.SetBytes(256 << 10)
	for b.Loop() {
		batch, err := l.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		batch.Free()
	}
}
