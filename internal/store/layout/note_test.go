// SPDX-License-Identifier: Apache-2.0

package layout

import "testing"

// FuzzNote holds the reader of notes against any bytes: what it reads has a name and a value in each line.
func FuzzNote(f *testing.F) {
	f.Add([]byte(FormatNote("u", true)))
	f.Add([]byte("epoch 7\nepoch 8\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := parseNote(b)
		if err != nil {
			return
		}
		for name, value := range n {
			if name == "" || value == "" {
				t.Errorf("%q is %q", name, value)
			}
		}
	})
}
