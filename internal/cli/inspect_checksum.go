// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/checksum"
)

// checksumJSON is a sidecar that was written.
type checksumJSON struct {
	Path    string  `json:"path"`
	Block   int64   `json:"block_size"`
	Blocks  int     `json:"blocks"`
	Seconds float64 `json:"seconds"` // of reading and summing the file
}

// checksum sums every file of the inspected model and writes the sidecars. All
// are made before the first is written, so that an interrupt leaves none.
func (a *app) checksum(ctx context.Context, r *inspectJSON, quiet bool) error {
	var total, before int64
	for _, f := range r.Files {
		total += f.Size
	}
	p := a.startProgress(total, quiet)
	defer p.clear()
	sums := make([]*checksum.Sums, len(r.Files))
	for i := range r.Files {
		f := &r.Files[i]
		began := a.Now()
		s, err := checksum.Compute(ctx, f.Path, checksum.DefaultBlock, func(done, _ int64) { p.update(before+done, total) })
		if err != nil {
			return interrupted(ctx, err)
		}
		// The headers were read before: sums of another version would vouch
		// for what nobody has checked.
		if err := s.CheckSize(f.Path, f.Size); err != nil {
			return err
		}
		sums[i] = s
		before += f.Size
		f.Checksum = &checksumJSON{Path: checksum.Path(f.Path), Block: s.Block, Blocks: len(s.Blocks), Seconds: a.Now().Sub(began).Seconds()}
	}
	for i, s := range sums {
		if _, err := s.Write(r.Files[i].Path); err != nil {
			return err
		}
	}
	return nil
}
