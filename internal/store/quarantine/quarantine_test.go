// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

func FuzzFileNote(f *testing.F) {
	f.Add([]byte(`{"path":"data/00/00/0000000000000001","why":"w","when":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"path":"../FORMAT"}`))
	f.Add([]byte(`{"path":"tmp/../meta/x"}`))
	f.Add([]byte(`{"path":"data"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := parseFileNote("note", text)
		if err != nil {
			return
		}
		at := filepath.Join("/store", n.Path)
		if !strings.HasPrefix(at, "/store/data/") && !strings.HasPrefix(at, "/store/tmp/") {
			t.Errorf("%q leads to %s", n.Path, at)
		}
	})
}

func FuzzSavedRecords(f *testing.F) {
	f.Add([]byte(`{"key":"ZAAB","value":"eA==","new":null,"what":"w","why":"y","when":"2026-01-02T03:04:05Z"}` + "\n"))
	f.Add([]byte("{\"key\":\"\"}\n"))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_ = parseSavedRecords("records", bytes.NewReader(text), func(r *SavedRecord) error {
			if len(r.Key) == 0 {
				t.Error("a record without a key")
			}
			return nil
		})
	})
}
