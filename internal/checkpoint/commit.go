// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// mostMetadata is the largest size of .metadata in bytes.
const mostMetadata = 1 << 30

// CommitRequest describes the checkpoint that Commit makes visible.
type CommitRequest struct {
	// Draft is the manifest as JSON. Commit sets the fields "version", "format", "bytes" and "metadata", and sets
	// "created" if it is missing. If a file has no "crc64nvme", Commit takes it from FILE.crc64nvme.
	Draft []byte
	// Metadata is the content of .metadata.
	Metadata []byte
	// Now is the time for "created".
	Now time.Time
}

// Committed is the result of Commit.
type Committed struct {
	Manifest *Manifest
	Name     string   // of the manifest
	Removed  []string // files of older saves that were removed
	Notes    []string
}

// Commit makes a checkpoint complete whose data files are written and durable. The package comment has the order of the
// steps. If a data file is missing or has another size than the manifest says, Commit fails and changes nothing. If
// Commit fails before .metadata is in place, an older checkpoint in the folder is still complete.
func Commit(ctx context.Context, f Folder, r CommitRequest) (*Committed, error) {
	const op = "commit checkpoint"
	m, err := parseDraft(f.Shown(""), r)
	if err != nil {
		return nil, err
	}
	unlock, err := f.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := m.present(ctx, f); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, &errs.Error{Kind: errs.Cancelled, Op: op, Name: f.Shown(""), Err: context.Cause(ctx)}
	}
	text, err := m.encode()
	if err != nil {
		return nil, errs.Wrap(op, f.Shown(""), err)
	}
	out := &Committed{Manifest: m, Name: ManifestName(m.ID)}
	// The names of the data files and of the directory itself become durable before anything refers to them.
	err = f.Sync(ctx)
	if err == nil {
		err = f.Put(ctx, checksum.Path(out.Name), sumsOf(text).Encode())
	}
	if err == nil {
		err = f.Put(ctx, out.Name, text)
	}
	if err == nil {
		err = f.Put(ctx, MetadataName, r.Metadata)
	}
	if err != nil {
		m.takeBack(f)
		return nil, errs.Wrap(op, f.Shown(""), err)
	}
	if out.Removed, err = m.tidy(context.WithoutCancel(ctx), f); err != nil {
		out.Notes = append(out.Notes, "the checkpoint is complete; files of older saves could not be removed: "+err.Error())
	}
	return out, nil
}

// encode returns the manifest as JSON.
func (m *Manifest) encode() ([]byte, error) {
	text, err := json.Marshal(m)
	if err == nil && len(text) > MostManifest {
		err = errs.New(errs.Unsupported, "", "", fmt.Sprintf("the manifest has %d bytes, expected at most %d", len(text),
			MostManifest))
	}
	return text, err
}

// parseDraft completes and checks the manifest of a new checkpoint.
func parseDraft(where string, r CommitRequest) (*Manifest, error) {
	const op = "commit checkpoint"
	bad := func(why string) error { return errs.New(errs.Invalid, op, where, why) }
	if len(r.Draft) > MostManifest || len(r.Metadata) > mostMetadata {
		return nil, bad(fmt.Sprintf("the manifest has %d bytes and .metadata has %d; expected at most %d and %d",
			len(r.Draft), len(r.Metadata), MostManifest, mostMetadata))
	}
	if len(r.Metadata) == 0 {
		return nil, bad(".metadata is empty; expected the pickle of PyTorch's Metadata")
	}
	m := &Manifest{}
	if err := json.Unmarshal(r.Draft, m); err != nil {
		return nil, bad("manifest: " + err.Error())
	}
	m.Version = manifestVersion
	m.Format = manifestFormat
	if m.Created.IsZero() {
		m.Created = r.Now.UTC().Truncate(time.Second)
	}
	if m.Files == nil {
		m.Files = files{}
	}
	if m.Items == nil {
		m.Items = items{}
	}
	m.Metadata = FileSum{Name: MetadataName, Size: int64(len(r.Metadata)), CRC64: sumText(checksum.Of(r.Metadata))}
	m.Bytes = 0
	for i, x := range m.Files {
		if _, id, ok := dataID(x.Name); !ok || id != m.ID {
			return nil, bad(fmt.Sprintf("files[%d] has the name %q; expected __RANK_NUMBER_%s.distcp", i, x.Name, m.ID))
		}
		m.Bytes += x.Size
	}
	if err := m.check(); err != nil {
		return nil, bad("manifest: " + err.Error())
	}
	return m, nil
}

// present checks that all data files are in the folder, and completes their checksums.
func (m *Manifest) present(ctx context.Context, f Folder) error {
	const op = "commit checkpoint"
	all, err := entriesByName(ctx, f)
	if err != nil {
		return err
	}
	for i := range m.Files {
		x := &m.Files[i]
		e, ok := all[x.Name]
		if !ok || e.Kind != KindFile {
			return errs.New(errs.NotFound, op, f.Shown(""), fmt.Sprintf("the data file %s is missing", x.Name)).
				WithFix("let every rank finish its files before the commit, in a directory that all ranks share")
		}
		if e.Size != x.Size {
			return errs.New(errs.Corrupt, op, f.Shown(x.Name), fmt.Sprintf("has %d bytes, expected %d", e.Size, x.Size)).
				WithFix("save the checkpoint again")
		}
		if x.CRC64 == "" {
			if x.CRC64, err = sidecarSum(ctx, f, x.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// sidecarSum returns the checksum of a whole file from the checksums of its blocks, or "" if there are none.
func sidecarSum(ctx context.Context, f Folder, name string) (string, error) {
	o, err := f.Open(ctx, name)
	if err != nil {
		return "", err
	}
	defer o.File.Close()
	if o.SumsErr != nil || o.Sums == nil {
		return "", o.SumsErr
	}
	return sumText(wholeSum(o.Sums)), nil
}

// wholeSum joins the checksums of blocks to that of the whole file.
func wholeSum(s *checksum.Sums) uint64 {
	join, sum := checksum.NewJoiner(), uint64(0)
	for i, b := range s.Blocks {
		off, n := s.Extent(int64(i))
		sum ^= join.After(b, s.Size-off-n)
	}
	return sum
}

// sumsOf returns the checksums of the blocks of b.
func sumsOf(b []byte) *checksum.Sums {
	s := &checksum.Sums{Size: int64(len(b)), Block: checksum.DefaultBlock}
	for off := 0; off < len(b); off += checksum.DefaultBlock {
		s.Blocks = append(s.Blocks, checksum.Of(b[off:min(len(b), off+checksum.DefaultBlock)]))
	}
	return s
}

// takeBack removes the manifest of a commit that failed, unless .metadata is in place nevertheless. The context of the
// commit may have ended, so takeBack has its own.
func (m *Manifest) takeBack(f Folder) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if b, err := f.ReadAll(ctx, MetadataName, mostMetadata); errs.Is(err, errs.NotFound) ||
		err == nil && sumText(checksum.Of(b)) != m.Metadata.CRC64 {
		// if it stays, it belongs to no checkpoint
		_ = f.Remove(ctx, []string{ManifestName(m.ID), checksum.Path(ManifestName(m.ID))})
	}
}

// tidy removes the files of older saves.
func (m *Manifest) tidy(ctx context.Context, f Folder) ([]string, error) {
	keep := map[string]bool{ManifestName(m.ID): true}
	for _, x := range m.Files {
		keep[x.Name] = true
	}
	all, err := f.Entries(ctx)
	if err != nil {
		return nil, err
	}
	var gone []string
	for _, e := range all {
		if file := checkedFile(e.Name); e.Kind != KindFolder && ofSave(e.Name) && !keep[e.Name] && !keep[file] {
			gone = append(gone, e.Name)
		}
	}
	if len(gone) == 0 {
		return nil, nil
	}
	if err := f.Remove(ctx, gone); err != nil {
		return nil, err
	}
	return gone, f.Sync(ctx)
}

// entriesByName lists a folder.
func entriesByName(ctx context.Context, f Folder) (map[string]Entry, error) {
	all, err := f.Entries(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]Entry, len(all))
	for _, e := range all {
		out[e.Name] = e
	}
	return out, nil
}

func sortEntries(all []Entry) {
	slices.SortFunc(all, func(a, b Entry) int {
		if a.Name < b.Name {
			return -1
		}
		if a.Name > b.Name {
			return 1
		}
		return 0
	})
}
