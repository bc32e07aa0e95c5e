// SPDX-License-Identifier: Apache-2.0

package metafile

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// LogName returns the file name of the log with this number.
func LogName(n uint64) string { return fmt.Sprintf("%06d.log", n) }

// ManifestName returns the file name of the manifest with this number.
func ManifestName(n uint64) string { return fmt.Sprintf("MANIFEST-%06d", n) }

// CurrentManifest returns the name of the manifest that the marker file in a directory names, or "" if there is none.
func CurrentManifest(f vfs.FS, dir string) (string, error) {
	desc, err := pebble.Peek(dir, f)
	if err != nil || !desc.Exists {
		return "", err
	}
	return f.PathBase(desc.ManifestFilename), nil
}
