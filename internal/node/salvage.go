// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/salvage"
)

// SalvageReport is what was read, saved and lost of a damaged store.
type SalvageReport struct {
	Metadata []MetaFile    `json:"metadata"` // the files that were read
	Changes  int64         `json:"changes"`  // read out of them
	Buckets  int64         `json:"buckets"`
	Objects  int64         `json:"objects"` // versions and delete markers that were saved
	Bytes    int64         `json:"bytes"`   // of their content
	Uploads  int64         `json:"uploads"`
	Records  int64         `json:"records"`  // accounts and settings
	Doubtful int64         `json:"doubtful"` // of the objects: a later change of them may be lost
	Lost     int64         `json:"lost"`
	Saved    []SavedObject `json:"saved"`  // the first of them, where there are very many
	Losses   []Loss        `json:"losses"` // the first of them, where there are very many
	Warnings []string      `json:"warnings"`
	Problems int64         `json:"problems"` // that a check of the new store found
}

// SavedObject is a version that was saved.
type SavedObject struct {
	Bucket   string `json:"bucket"`
	Key      string `json:"key"`
	Version  string `json:"version,omitempty"`
	Size     int64  `json:"size"`
	Doubtful bool   `json:"doubtful,omitempty"` // it may have been overwritten or deleted
}

// Loss is something that could not be saved.
type Loss struct {
	Bucket  string `json:"bucket,omitempty"`
	Key     string `json:"key"`
	Version string `json:"version,omitempty"`
	Why     string `json:"why"`
}

// Salvage saves what is readable of a damaged store into a new one and checks that. Link lets both share files.
func Salvage(ctx context.Context, from, to string, link bool, progress func(changes, objects int64)) (SalvageReport,
	error) {
	o := salvage.Options{From: from, To: to, Link: link}
	if progress != nil {
		o.Progress = func(r salvage.Report) { progress(r.Changes, r.Objects) }
	}
	r, err := salvage.Run(ctx, o)
	out := SalvageReport{Metadata: metaFiles(r.Metadata), Changes: r.Changes, Buckets: r.Buckets, Objects: r.Objects,
		Bytes:   r.Bytes,
		Uploads: r.Uploads, Records: r.Records, Doubtful: r.Doubtful, Lost: r.Lost, Saved: []SavedObject{},
		Losses: []Loss{}, Warnings: append([]string{}, r.Warnings...)}
	for _, s := range r.Saved {
		out.Saved = append(out.Saved, SavedObject(s))
	}
	for _, l := range r.Losses {
		out.Losses = append(out.Losses, Loss(l))
	}
	if err != nil {
		return out, err
	}
	found, err := disk.Check(ctx, disk.Options{Dir: to}, check.Options{})
	out.Problems = found.Found
	return out, err
}
