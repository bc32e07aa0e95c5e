// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"fmt"
	"maps"
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
	folder   Folder
	entries  map[string]Entry
	manifest *Manifest // without items; nil if there is none that belongs to .metadata
	stored   []stored  // of a checkpoint that PyTorch wrote
	data     []FileSum // the files of the checkpoint; a size of -1 means any
	problems []Problem
	metadata bool // the folder has a .metadata
	empty    bool // the folder has no entries
	// changed is the time of the newest file. It shows whether a save may be running.
	changed time.Time
}

// problem records something that is wrong with the checkpoint. The first problem is the reason why the checkpoint is not
// complete.
func (s *state) problem(kind, file, format string, args ...any) {
	s.problems = append(s.problems, Problem{Kind: kind, File: file, Message: fmt.Sprintf(format, args...)})
}

// contents are the names in a folder, by what they are.
type contents struct {
	manifests, data, tensors []string
	index                    string
	temporary                bool
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
	if step, ok := stepOf(name); ok {
		s.Step = &step
	}
	for _, e := range entries {
		if e.Kind == KindFile && e.Time.After(s.changed) {
			s.changed = e.Time
		}
	}
	s.Time = s.changed
	c := sortOut(entries)
	_, s.metadata = entries[MetadataName]
	switch {
	case s.metadata:
		err = s.lookAtMetadata(ctx, c)
	case len(c.manifests)+len(c.data) > 0:
		s.Format = FormatNebulaIO
		if len(c.manifests) == 0 && !anyID(c.data) {
			s.Format = FormatTorch
		}
		for _, name := range c.data {
			s.data = append(s.data, FileSum{Name: name, Size: -1})
		}
		s.problem(ProblemMissing, MetadataName, "there is no .metadata: the save has not finished, or was killed")
	case len(c.tensors) > 0 || c.index != "":
		err = s.lookAtTensors(ctx, c)
	case c.temporary:
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
	sum := sumText(checksum.Of(b))
	var bad []Problem
	ids := map[string]bool{}
	for _, name := range c.manifests[:min(len(c.manifests), mostManifests)] {
		id, _ := manifestID(name)
		ids[id] = true
		text, err := s.folder.ReadAll(ctx, name, MostManifest)
		var m *Manifest
		if err == nil {
			m, err = parseSummary(s.folder.Shown(name), text)
		}
		if err == nil && m.ID != id {
			err = errs.New(errs.Corrupt, "read manifest", s.folder.Shown(name), "it has the id "+m.ID)
		}
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			bad = append(bad, Problem{Kind: ProblemManifest, File: name, Message: errs.MessageOf(err)})
			continue
		}
		if m.Metadata.CRC64 == sum && m.Metadata.Size == int64(len(b)) {
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
	s.Format, s.ID, s.World, s.manifest, s.Time = FormatNebulaIO, m.ID, m.World, m, m.Created
	if s.Step == nil {
		s.Step = m.Step
	}
	s.data = m.Files
}

// lookAtStored examines a .metadata that belongs to no manifest. It may be PyTorch's own, with what a killed save of ours
// left beside it. Or it is damaged, or of another run.
func (s *state) lookAtStored(unparsed error, ids map[string]bool, bad []Problem) {
	s.problems = append(s.problems, bad...)
	if unparsed != nil {
		s.problem(ProblemMetadata, MetadataName, "it belongs to no manifest in the directory, and cannot be read: %s",
			errs.MessageOf(unparsed))
		return
	}
	ranks, sizes := map[int]bool{}, map[string]int64{}
	for _, x := range s.stored {
		sizes[x.file] = max(sizes[x.file], x.offset+x.size)
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
	if s.Complete = len(s.problems) == 0; !s.Complete {
		p := s.problems[0]
		s.Reason = p.File + ": " + p.Message
		s.Checksums = false
	}
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
