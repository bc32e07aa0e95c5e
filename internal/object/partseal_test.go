// SPDX-License-Identifier: Apache-2.0

package object_test

import (
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
)

// FuzzPartSeal reads arbitrary attributes of parts. What is read is written the same way again, up to zeros in front.
func FuzzPartSeal(f *testing.F) {
	f.Add(object.PartSeal{Size: 5 << 20, CRC: 77, Salt: []byte("0123456789abcdef")}.Text())
	f.Add("1:2:3")
	f.Add("-1::")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := object.ParsePartSeal(text)
		if err != nil {
			return
		}
		again, err := object.ParsePartSeal(p.Text())
		if err != nil || again.Size != p.Size || again.CRC != p.CRC || string(again.Salt) != string(p.Salt) {
			t.Fatalf("%q became %+v, then %+v: %v", text, p, again, err)
		}
	})
}
