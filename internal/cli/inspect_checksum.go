// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/checksum"
)

// checksumJSON describes a written sidecar.
type checksumJSON struct {
	Path    string  `json:"path"`
	Block   int64   `json:"block_size"`
	Blocks  int     `json:"blocks"`
	Seconds float64 `json:"seconds"` // time to read and sum the file
}

// checksum sums every file of the model and then writes all sidecars. An
// interrupt before the last sum leaves no sidecar.
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
		// The headers were checked before. If the file has changed since, its sums
		// would vouch for unchecked headers.
		if err := s.CheckSize(f.Path, f.Size); err != nil {
			return err
		}
		sums[i] = s
		before += f.Size
		f.Checksum = &checksumJSON{
			Path:    checksum.Path(f.Path),
			Block:   s.Block,
			Blocks:  len(s.Blocks),
			Seconds: a.Now().Sub(began).Seconds(),
		}
	}
	for i, s := range sums {
		if _, err := s.Write(r.Files[i].Path); err != nil {
			return err
		}
	}
	return nil
}
