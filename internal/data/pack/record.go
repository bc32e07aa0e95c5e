// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	// StateName is the name of the file that describes a pack, also after it is complete.
	StateName = hidden + "pack.json"
	// recordPrefix begins the names of the records of finished shards, which are removed at the end.
	recordPrefix = hidden + "shard-"

	stateVersion = 1
	maxState     = 64 << 20 // the most bytes of a state or a record that are read
	maxBadListed = 1000     // the most bad files that a state lists by name
)

// state describes a pack: what is packed and how, and, at the end, the result.
type state struct {
	Version   int               `json:"version"`
	Complete  bool              `json:"complete"`
	Format    string            `json:"format"`
	Arguments map[string]string `json:"arguments"`
	Source    string            `json:"source_digest"`
	Files     int               `json:"source_files"`
	SkipBad   bool              `json:"skip_bad"`
	Shards    int               `json:"shards"`
	Result    *Totals           `json:"result,omitempty"`
}

// Totals count what a pack has.
type Totals struct {
	Samples  int64 `json:"samples"`
	Shards   int   `json:"shards"` // number of shards that have samples
	Files    int   `json:"files"`  // number of files that were written
	Bytes    int64 `json:"bytes"`  // of all written files
	BadCount int   `json:"bad_count"`
	Bad      []Bad `json:"bad,omitempty"`             // at most 1,000 of the bad files
	Empty    int64 `json:"empty_documents,omitempty"` // number of documents without tokens
}

// record describes a finished shard.
type record struct {
	Shard   int           `json:"shard"`
	Samples int64         `json:"samples"`
	Empty   int64         `json:"empty_documents,omitempty"`
	Files   []writtenFile `json:"files"` // the data first; empty if all samples are bad
	Bad     []Bad         `json:"bad,omitempty"`
}

// writtenFile is a file of a pack with the CRC-64/NVME of its content, or of its sidecar if it has one.
type writtenFile struct {
	Name  string `json:"name"`
	Size  int64  `json:"size"`
	Sum   string `json:"crc64nvme"`
	Sided bool   `json:"sidecar,omitempty"` // the sum is that of the sidecar, which has the sums of all blocks
}

func recordName(shard int) string { return fmt.Sprintf("%s%06d", recordPrefix, shard) }

func sumText(sum uint64) string { return fmt.Sprintf("%016x", sum) }

// newState describes a pack that begins.
func newState(p *plan, o *Options) *state {
	args := map[string]string{"shard size": strconv.FormatInt(o.ShardSize, 10), "aligned": strconv.FormatBool(o.Aligned),
		"shuffle": "no"}
	if o.Shuffle {
		args["shuffle"] = "seed " + strconv.FormatUint(o.Seed, 10)
	}
	if o.Format == Bin {
		args["token type"] = string(o.DType)
		if o.Encoder != nil {
			args["tokenizer"], args["text field"] = o.Encoder.Identity(), o.TextField
		}
		if o.HasEOD {
			args["end-of-document token"] = strconv.FormatUint(uint64(o.EOD), 10)
		}
	}
	for column, encoding := range o.Encodings {
		args["encoding of "+column] = encoding
	}
	return &state{Version: stateVersion, Format: o.Format, Arguments: args, Source: p.digest, Files: p.listed,
		SkipBad: o.SkipBad, Shards: len(p.shards) - 1}
}

// differs returns what differs between a pack that was begun before and the one that is wanted, or "".
func (s *state) differs(now *state) string {
	var all []string
	note := func(what, was, is string) {
		if was != is {
			all = append(all, fmt.Sprintf("%s was %q and is %q now", what, was, is))
		}
	}
	note("the format", s.Format, now.Format)
	names := maps.Clone(s.Arguments)
	maps.Copy(names, now.Arguments)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		note("the "+name, s.Arguments[name], now.Arguments[name])
	}
	if s.SkipBad && !now.SkipBad {
		all = append(all, "bad files were skipped, and are not to be skipped now")
	}
	if s.Source != now.Source {
		text := "the source has changed: other names, sizes or times of files"
		if s.Files != now.Files {
			text = fmt.Sprintf("the source has changed: it had %d files and has %d now", s.Files, now.Files)
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// writeJSON writes a small file of JSON durably.
func writeJSON(ctx context.Context, out Place, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return errs.Wrap("write", out.Shown(name), err)
	}
	if err := writeFile(ctx, out, name, append(b, '\n')); err != nil {
		return err
	}
	return out.Sync(ctx)
}

// writeFile writes a whole file. The caller calls Sync.
func writeFile(ctx context.Context, out Place, name string, content []byte) error {
	f, err := out.Create(ctx, name)
	if err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		f.Abort()
		return err
	}
	return f.Commit()
}

// readFile reads a whole file of at most `most` bytes.
func readFile(ctx context.Context, p Place, e Entry, most int64) ([]byte, error) {
	if e.Size > most {
		return nil, errs.New(errs.Corrupt, "read", p.Shown(e.Name), fmt.Sprintf("it has %d bytes, expected at most %d",
			e.Size, most))
	}
	r := p.NewReader()
	defer r.Close()
	b := make([]byte, e.Size, e.Size+1)
	return b, r.Read(ctx, e, b)
}

// readJSON reads a file that writeJSON wrote.
func readJSON(ctx context.Context, p Place, e Entry, v any) error {
	b, err := readFile(ctx, p, e, maxState)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return errs.New(errs.Corrupt, "read", p.Shown(e.Name), "it is no state of a pack: "+err.Error()).WithFix(fixRestart)
	}
	return nil
}

const fixRestart = "give --restart to remove the old pack and begin again, or choose another place"

// load reads the records of finished shards. A record counts only if all of its files have the right size.
func load(ctx context.Context, out Place, there map[string]Entry, shards int) ([]*record, error) {
	all := make([]*record, shards)
	for i := range all {
		e, ok := there[recordName(i)]
		if !ok {
			continue
		}
		r := &record{}
		if err := readJSON(ctx, out, e, r); err != nil {
			return nil, err
		}
		whole := r.Shard == i
		for _, f := range r.Files {
			whole = whole && there[f.Name].Size == f.Size && (!f.Sided || there[f.Name+checksum.Suffix].Name != "")
		}
		if whole {
			all[i] = r
		}
	}
	return all, nil
}
