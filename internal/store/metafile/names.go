// SPDX-License-Identifier: Apache-2.0

package metafile

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// LogName is the name of a log by its number.
func LogName(n uint64) string { return fmt.Sprintf("%06d.log", n) }

// ManifestName is the name of a manifest by its number.
func ManifestName(n uint64) string { return fmt.Sprintf("MANIFEST-%06d", n) }

// CurrentManifest is the name of the manifest that the marker in a directory names, or "" if no marker names one.
func CurrentManifest(f vfs.FS, dir string) (string, error) {
	desc, err := pebble.Peek(dir, f)
	if err != nil || !desc.Exists {
		return "", err
	}
	return f.PathBase(desc.ManifestFilename), nil
}
