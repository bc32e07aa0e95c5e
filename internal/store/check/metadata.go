// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"io/fs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
	"github.com/nebulaio/nebulaio/internal/store/metascan"
	"github.com/nebulaio/nebulaio/internal/store/witness"
)

// MetaState is the state of a stopped store's metadata, judged by the metadata files and the witness (two small files
// that record how far the metadata is durable).
type MetaState struct {
	// Damaged means that metadata is damaged, or that the witness files are lost and no repair was requested. A store
	// with damaged metadata is not checked further, because comparing incomplete records proves nothing.
	Damaged   bool
	Proven    bool // the witness files prove that no recent change of the metadata is lost
	Unproven  bool // the witness files are lost, and repair continues without their proof
	EpochLost bool // the file EPOCH is missing or damaged, and has to be written again
}

// ReadMetadata reads every metadata file, even if some are damaged, and adds each damage to the report.
func ReadMetadata(ctx context.Context, e witness.Examiner, c Options, report *Report) (state MetaState, err error) {
	meta := e.FS.PathJoin(e.Dir, layout.MetaName)
	if name, err := metafile.CurrentManifest(e.FS, meta); name == "" && (err == nil || errors.Is(err, fs.ErrNotExist)) {
		return state, nil // whoever opens the store says what is missing
	}
	t, err := e.Examine()
	if err != nil {
		return state, err
	}
	r, err := metascan.Open(e.FS, meta, t.ManifestIsShort())
	if err != nil {
		return state, err
	}
	k := &metascan.Survey{Ctx: ctx}
	if c.Progress != nil {
		k.Told = func() { c.Progress(report.Records, report.Files) }
	}
	err = k.Run(r, t.Short, t.Known)
	report.Metadata = append(report.Metadata, k.Files...)
	for _, d := range k.Damage {
		report.add(Problem{Invariant: "metadata", What: layout.MetaName + "/" + d.Name, Msg: d.Msg})
	}
	if err != nil {
		return state, errs.Wrap("check store", e.Dir, err)
	}
	whole := len(k.Damage) == 0
	state.Proven = t.Known && whole
	mended := func(what, msg string) {
		p := Problem{Invariant: "witness", What: what, Msg: msg, Repaired: c.Repair && whole}
		if p.Repaired {
			p.Did = "written anew"
		}
		report.add(p)
	}
	if t.Epoch != "" {
		state.EpochLost = true
		mended(layout.EpochName, t.Epoch)
	}
	if t.Spoilt != "" {
		mended(t.Spoilt, "this copy of the witness is missing or damaged; the other is whole")
	}
	if t.Gone {
		state.Unproven = c.Repair && whole
		report.add(Problem{Invariant: "witness", What: layout.WitnessNames[0] + " and " + layout.WitnessNames[1],
			Repaired: state.Unproven,
			Msg:      "both are missing or damaged, so nothing proves that the newest log of the metadata is whole"})
	}
	state.Damaged = !whole || t.Gone && !c.Repair
	return state, nil
}
