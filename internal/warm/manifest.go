// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// ManifestName is the name of the list of files that was brought to a directory.
const ManifestName = ".nebulaio-warm.json"

// Manifest lists what was brought to a directory, and from where.
type Manifest struct {
	Source string         `json:"source"`
	Kind   string         `json:"kind"`
	Bytes  int64          `json:"bytes"`
	Ended  time.Time      `json:"ended"`
	Files  []ManifestFile `json:"files"`
}

// ManifestFile is one file of a Manifest.
type ManifestFile struct {
	Key  string `json:"key"`
	Size int64  `json:"size"`
	ETag string `json:"etag,omitempty"` // of the object that it was copied from
}

// ManifestOf returns the manifest of a plan that was carried out.
func ManifestOf(p Plan, ended time.Time) Manifest {
	m := Manifest{Source: p.From.String(), Kind: p.Kind, Bytes: p.Bytes, Ended: ended.UTC(),
		Files: make([]ManifestFile, 0, len(p.Entries))}
	for _, e := range p.Entries {
		m.Files = append(m.Files, ManifestFile{Key: e.Key, Size: e.Size, ETag: e.ETag})
	}
	return m
}

// Write writes the manifest into a directory, whole or not at all.
func (m Manifest) Write(dir string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return errs.Wrap("write manifest", dir, err)
	}
	f, err := os.CreateTemp(dir, ManifestName+"-*")
	if err != nil {
		return errs.Wrap("write manifest", dir, err)
	}
	temp := f.Name()
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(temp, filepath.Join(dir, ManifestName))
	}
	if err != nil {
		_ = os.Remove(temp)
		return errs.Wrap("write manifest", filepath.Join(dir, ManifestName), err)
	}
	return nil
}

// ReadManifest reads the manifest of a directory. A directory without one gives an error of kind NotFound.
func ReadManifest(dir string) (Manifest, error) {
	path := filepath.Join(dir, ManifestName)
	text, err := os.ReadFile(path)
	if err != nil {
		return Manifest{}, errs.Wrap("read manifest", path, err)
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return Manifest{}, &errs.Error{Kind: errs.Corrupt, Op: "read manifest", Name: path, Err: err,
			Fix: "run nebulaio warm again"}
	}
	return m, nil
}
