// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/salvage"
)

// SalvageReport lists the data that Salvage has read from a damaged store, saved in a new store, and lost.
type SalvageReport struct {
	Metadata []MetaFile    `json:"metadata"` // metadata files of the damaged store
	Changes  int64         `json:"changes"`  // number of metadata changes that could be read
	Buckets  int64         `json:"buckets"`
	Objects  int64         `json:"objects"` // number of saved object versions and delete markers
	Bytes    int64         `json:"bytes"`   // bytes of content of the saved object versions
	Uploads  int64         `json:"uploads"`
	Records  int64         `json:"records"`  // number of saved accounts and settings
	Journal  int64         `json:"journal"`  // number of saved events and replications that wait
	Doubtful int64         `json:"doubtful"` // number of saved versions that may have been replaced or deleted
	Lost     int64         `json:"lost"`
	Saved    []SavedObject `json:"saved"`  // saved object versions; only the first ones if there are very many
	Losses   []Loss        `json:"losses"` // what could not be saved; only the first ones if there are very many
	Warnings []string      `json:"warnings"`
	Problems int64         `json:"problems"` // number of problems that a check found in the new store
}

// SavedObject describes an object version that Salvage has saved.
type SavedObject struct {
	Bucket   string `json:"bucket"`
	Key      string `json:"key"`
	Version  string `json:"version,omitempty"`
	Size     int64  `json:"size"`
	Doubtful bool   `json:"doubtful,omitempty"` // whether the version may have been overwritten or deleted later
}

// Loss describes an object, bucket or record that Salvage could not save.
type Loss struct {
	Bucket  string `json:"bucket,omitempty"`
	Key     string `json:"key"`
	Version string `json:"version,omitempty"`
	Why     string `json:"why"`
}

// Salvage copies everything readable from a damaged store to a new store. The parameter named from is the directory
// of the damaged store, and the parameter named to is the directory of the new store. Salvage checks the new store
// after copying. If link is true, Salvage may hard-link data files instead of copying them, so that both stores share
// the files. If progress is not nil, Salvage calls it from time to time.
func Salvage(ctx context.Context, from, to string, link bool, progress func(changes, objects int64)) (SalvageReport,
	error) {
	o := salvage.Options{From: from, To: to, Link: link}
	if progress != nil {
		o.Progress = func(r salvage.Report) { progress(r.Changes, r.Objects) }
	}
	r, err := salvage.Run(ctx, o)
	out := SalvageReport{Metadata: metaFiles(r.Metadata), Changes: r.Changes, Buckets: r.Buckets, Objects: r.Objects,
		Bytes: r.Bytes, Uploads: r.Uploads, Records: r.Records, Journal: r.Journal, Doubtful: r.Doubtful, Lost: r.Lost,
		Saved: []SavedObject{}, Losses: []Loss{}, Warnings: append([]string{}, r.Warnings...)}
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
