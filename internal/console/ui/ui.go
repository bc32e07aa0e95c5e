// SPDX-License-Identifier: Apache-2.0

// Package ui holds the pages of the console: plain files that a browser runs as they are, embedded in the program.
//
// The pages are ES modules on Preact and htm, which lie beside them in files/static/vendor. There is no build step.
// The pages live with a strict Content-Security-Policy: no inline script, no inline style, nothing from another host.
package ui

import (
	"embed"
	"io/fs"
)

//go:embed files
var embedded embed.FS

// Files returns the files of the pages: index.html at the root, and below static/ what index.html refers to. The
// returned tree is read-only and safe for concurrent use.
func Files() fs.FS {
	below, err := fs.Sub(embedded, "files")
	if err != nil {
		panic(err) // "files" is a constant and a valid path: see the directive above
	}
	return below
}
