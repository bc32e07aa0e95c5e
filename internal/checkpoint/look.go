// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Checkpoint describes a checkpoint, complete or not.
type Checkpoint struct {
	Name     string // name in its root; "." for the path itself
	Path     string
	Step     *int64 // nil if neither the name nor the manifest has one
	Complete bool
	Reason   string // why the checkpoint is not complete
	Format   string // one of FormatNebulaIO, FormatTorch, FormatSafetensors and FormatTorchFile; empty if not known
	Time     time.Time
	Bytes    int64 // of the data files
	Files    int   // number of data files
	World    int   // number of processes that saved the checkpoint; 0 if not known
	// Checksums reports whether there are checksums of all data files.
	Checksums bool
	ID        string // of the save; empty if the checkpoint has no manifest
}

// mostManifests is the largest number of manifests of one folder that are read. Killed saves may leave a few.
const mostManifests = 64

// state is what look finds out about a folder.
type state struct {
	Checkpoint
	folder  Folder
	entries map[string]Entry
	// manifests are those that belong to the metadata, without items until verify reads them. There is one as a rule.
	// There are several if the ranks saved without each other.
	manifests []*Manifest
	stored    []stored  // of a checkpoint that PyTorch wrote
	data      []FileSum // the files of the checkpoint; a size of -1 means any
	problems  []Problem
	unsure    string // why nobody can tell whether the checkpoint is complete
	metadata  bool   // the folder has a .metadata, or that of a rank
	empty     bool   // the folder has no entries
	// changed is the time of the newest file. It shows whether a save may be running.
	changed time.Time
}

// problem records something that is wrong with the checkpoint. The first problem is the reason why the checkpoint is
// not complete.
func (s *state) problem(kind, file, format string, args ...any) {
	s.problems = append(s.problems, Problem{Kind: kind, File: file, Message: fmt.Sprintf(format, args...)})
}

// contents are the names in a folder, by what they are.
type contents struct {
	manifests, data, tensors, ranks []string
	index                           string
	temporary                       bool // something of a save that has not finished
	mark                            bool // the mark of a save or prune of .safetensors files
}

func sortOut(entries map[string]Entry) contents {
	var c contents
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if e := entries[name]; e.Kind == KindFolder || e.Kind == KindOther {
			continue
		}
		if _, ok := manifestID(name); ok {
			c.manifests = append(c.manifests, name)
			continue
		}
		switch {
		case strings.HasSuffix(name, dataSuffix):
			c.data = append(c.data, name)
		case strings.HasSuffix(name, tensorSuffix):
			c.tensors = append(c.tensors, name)
		case strings.HasSuffix(name, indexSuffix):
			c.index = name
		case rankPattern.MatchString(name):
			c.ranks = append(c.ranks, name)
		case markPattern.MatchString(name):
			c.mark = true
		case isTemporary(name):
			c.temporary = true
		}
	}
	return c
}

// look examines a folder without reading its data files. If the folder holds nothing of a checkpoint, the format of the
// result is empty.
func look(ctx context.Context, f Folder, name string) (*state, error) {
	entries, err := entriesByName(ctx, f)
	if err != nil {
		return nil, err
	}
	s := &state{folder: f, entries: entries, empty: len(entries) == 0}
	s.Name, s.Path = name, f.Shown("")
	if step, ok := stepOf(path.Base(s.Path)); ok {
		s.Step = &step
	}
	for _, e := range entries {
		if e.Kind == KindFile && e.Time.After(s.changed) && e.Name != pruneMark {
			s.changed = e.Time
		}
	}
	s.Time = s.changed
	c := sortOut(entries)
	_, s.metadata = entries[MetadataName]
	switch {
	case s.metadata:
		err = s.lookAtMetadata(ctx, c)
	case len(c.ranks) > 0:
		s.metadata = true
		err = s.lookAtRanks(ctx, c)
	case len(c.data) == 0 && len(c.tensors)+len(c.index) > 0:
		err = s.lookAtTensors(ctx, c)
	case len(c.manifests)+len(c.data) > 0:
		s.Format = FormatNebulaIO
		if len(c.manifests) == 0 && !anyID(c.data) {
			s.Format = FormatTorch
		}
		for _, name := range c.data {
			s.data = append(s.data, FileSum{Name: name, Size: -1})
		}
		s.problem(ProblemMissing, MetadataName, "there is no .metadata: the save has not finished, or was killed")
	case c.temporary || c.mark:
		s.Format = FormatNebulaIO
		s.problem(ProblemMissing, MetadataName, "there is no .metadata: the save has not finished, or was killed")
	}
	if err != nil {
		return nil, err
	}
	s.settle()
	return s, nil
}

func anyID(data []string) bool {
	return slices.ContainsFunc(data, func(name string) bool {
		_, id, _ := dataID(name)
		return id != ""
	})
}

// lookAtMetadata finds the manifest that belongs to .metadata. Without a manifest, the checkpoint is one of PyTorch.
func (s *state) lookAtMetadata(ctx context.Context, c contents) error {
	s.Format, s.Time = FormatTorch, s.entries[MetadataName].Time
	if s.entries[MetadataName].Kind != KindFile {
		s.problem(ProblemMetadata, MetadataName, "it is not a regular file")
		return nil
	}
	b, err := s.folder.ReadAll(ctx, MetadataName, mostMetadata)
	if err != nil {
		return s.unreadable(ProblemMetadata, MetadataName, err)
	}
	all, bad, err := s.readManifests(ctx, c.manifests)
	if err != nil {
		return err
	}
	ids := map[string]bool{}
	for _, m := range all {
		if ids[m.ID] = true; m.Metadata.Name == MetadataName && m.Metadata.is(b) {
			s.adopt(m)
			return nil
		}
	}
	s.stored, err = parseMetadata(s.folder.Shown(MetadataName), b)
	if err != nil && len(c.manifests) == 0 {
		return s.unreadable(ProblemMetadata, MetadataName, err)
	}
	s.lookAtStored(err, ids, bad)
	return nil
}

// readManifests reads the manifests of a folder, without their items. Those that cannot be read become problems.
func (s *state) readManifests(ctx context.Context, names []string) (all []*Manifest, bad []Problem, err error) {
	for _, name := range names[:min(len(names), mostManifests)] {
		id, _ := manifestID(name)
		text, err := s.folder.ReadAll(ctx, name, MostManifest)
		var m *Manifest
		if err == nil {
			m, err = parseSummary(s.folder.Shown(name), text)
		}
		if err == nil && m.ID != id {
			err = errs.New(errs.Corrupt, "read manifest", s.folder.Shown(name), "it has the id "+m.ID)
		}
		if err == nil {
			all = append(all, m)
			continue
		}
		if k := errs.KindOf(err); k != errs.Corrupt && k != errs.Unsupported && k != errs.Invalid && k != errs.NotFound {
			return nil, nil, err
		}
		bad = append(bad, Problem{Kind: ProblemManifest, File: name, Message: errs.MessageOf(err)})
	}
	return all, bad, nil
}

// lookAtRanks examines a checkpoint whose ranks saved without each other, each with metadata of its own. The metadata
// does not say how many ranks there were.
func (s *state) lookAtRanks(ctx context.Context, c contents) error {
	s.Format, s.World = FormatTorch, len(c.ranks)
	s.unsure = "each rank has metadata of its own, which does not tell how many ranks there are"
	all, bad, err := s.readManifests(ctx, c.manifests)
	if err != nil {
		return err
	}
	s.problems = append(s.problems, bad...)
	for _, rank := range c.ranks {
		b, err := s.folder.ReadAll(ctx, rank, mostMetadata)
		if err != nil {
			if err := s.unreadable(ProblemMetadata, rank, err); err != nil {
				return err
			}
			continue
		}
		at := slices.IndexFunc(all, func(m *Manifest) bool { return m.Metadata.Name == rank && m.Metadata.is(b) })
		if at >= 0 {
			world := s.World
			s.adopt(all[at])
			s.World = world
			continue
		}
		if slices.ContainsFunc(all, func(m *Manifest) bool { return m.Metadata.Name == rank }) {
			s.problem(ProblemMetadata, rank,
				"it differs from the one that its manifest records: it is damaged, or of another run")
			continue
		}
		found, err := parseMetadata(s.folder.Shown(rank), b)
		if err != nil {
			if err := s.unreadable(ProblemMetadata, rank, err); err != nil {
				return err
			}
		}
		s.stored = append(s.stored, found...)
		s.storedFiles(found)
	}
	return nil
}

// unreadable records that a file cannot be used. An error that says nothing about the file is returned.
func (s *state) unreadable(kind, file string, err error) error {
	switch errs.KindOf(err) {
	case errs.Corrupt, errs.Invalid, errs.Unsupported, errs.NotFound:
		s.problem(kind, file, "%s", errs.MessageOf(err))
		return nil
	}
	return err
}

// adopt checks the files of a manifest that belongs to .metadata.
func (s *state) adopt(m *Manifest) {
	s.Format, s.ID, s.World, s.Time = FormatNebulaIO, m.ID, m.World, m.Created
	s.manifests = append(s.manifests, m)
	if s.Step == nil {
		s.Step = m.Step
	}
	s.data = append(s.data, m.Files...)
}

// lookAtStored examines a .metadata that belongs to no manifest. It may be PyTorch's own, with what a killed save of
// ours left beside it. Or it is damaged, or of another run.
func (s *state) lookAtStored(unparsed error, ids map[string]bool, bad []Problem) {
	s.problems = append(s.problems, bad...)
	if unparsed != nil {
		s.problem(ProblemMetadata, MetadataName, "it belongs to no manifest in the directory, and cannot be read: %s",
			errs.MessageOf(unparsed))
		return
	}
	ranks := map[int]bool{}
	for _, x := range s.stored {
		rank, id, ok := dataID(x.file)
		if ok {
			ranks[rank] = true
		}
		if ids[id] && len(bad) == 0 {
			s.Format = FormatNebulaIO
			s.problem(ProblemMetadata, MetadataName, "it differs from the one that %s records: it is damaged, or of another run",
				ManifestName(id))
			return
		}
	}
	if s.World = len(ranks); len(bad) > 0 {
		s.Format = FormatNebulaIO
	}
	s.storedFiles(s.stored)
}

// storedFiles adds the files that PyTorch's metadata names, and checks that they reach as far as it says.
func (s *state) storedFiles(all []stored) {
	sizes := map[string]int64{}
	for _, x := range all {
		sizes[x.file] = max(sizes[x.file], x.offset+x.size)
	}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		s.data = append(s.data, FileSum{Name: name, Size: -1})
		if e, ok := s.entries[name]; ok && e.Kind == KindFile && e.Size < sizes[name] {
			s.problem(ProblemSize, name, "it has %d bytes, expected at least %d", e.Size, sizes[name])
		}
	}
}

// settle checks that the data files are there, and sums up.
func (s *state) settle() {
	if s.Format == "" {
		if s.Reason = "there is no checkpoint"; s.empty && s.Step != nil {
			s.Reason = "the directory is empty"
		}
		return
	}
	s.Files, s.Checksums = len(s.data), len(s.data) > 0
	for _, x := range s.data {
		e, ok := s.entries[x.Name]
		_, summed := s.entries[checksum.Path(x.Name)]
		s.Checksums = s.Checksums && (summed || x.CRC64 != "")
		switch {
		case !ok:
			s.problem(ProblemMissing, x.Name, "the file is missing")
		case e.Kind == KindLink:
			s.problem(ProblemForeign, x.Name, "it is a link that leads to no file below this path")
		case e.Kind != KindFile:
			s.problem(ProblemForeign, x.Name, "it is not a regular file")
		case x.Size >= 0 && e.Size != x.Size:
			s.problem(ProblemSize, x.Name, "it has %d bytes, expected %d", e.Size, x.Size)
		}
		s.Bytes += e.Size
	}
	if len(s.problems) > 0 {
		s.Reason, s.Checksums = s.problems[0].File+": "+s.problems[0].Message, false
		return
	}
	s.Complete, s.Reason = s.unsure == "", s.unsure
}

// newer reports whether s has a file that is as new as the commit of the checkpoint c. Both times are those of the file
// system or of the server, so that the clocks of writers do not matter.
func (s *state) newer(c *state) bool {
	committed := c.changed
	if c.metadata {
		committed = c.entries[MetadataName].Time
	}
	return !s.changed.Before(committed)
}
