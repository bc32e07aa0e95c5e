// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
)

// numbered matches the names of shards, such as model-00001-of-00003.safetensors.
var numbered = regexp.MustCompile(`^(.*)-([0-9]{5,9})-of-([0-9]{5,9})\.safetensors$`)

// lookAtTensors examines a folder of .safetensors files.
func (s *state) lookAtTensors(ctx context.Context, c contents) error {
	s.Format = FormatSafetensors
	if done, err := s.tensorManifest(ctx, c); done || err != nil {
		return err
	}
	want := c.tensors
	if c.index != "" {
		text, err := s.folder.ReadAll(ctx, c.index, safetensors.MaxIndex)
		var ix *safetensors.Index
		if err == nil {
			ix, err = safetensors.ParseIndex(text, s.folder.Shown(c.index))
		}
		if err != nil {
			return s.unreadable(ProblemStructure, c.index, err)
		}
		want = ix.Shards
		s.Time = s.entries[c.index].Time
	} else {
		want = append(want, absent(c.tensors)...)
	}
	for _, name := range want {
		if strings.Contains(name, "/") {
			s.problem(ProblemStructure, name, "the file is in a folder below, where checkpoints have no files")
			continue
		}
		s.data = append(s.data, FileSum{Name: name, Size: -1})
		if e, ok := s.entries[name]; !ok || e.Kind != KindFile {
			continue // settle reports it
		}
		// A file with a size that differs from its header is not complete. Objects of a bucket are always complete, and are
		// not opened for a listing.
		if !s.folder.Atomic() {
			if _, err := tensorsOf(ctx, s.folder, name); err != nil {
				if err := s.unreadable(ProblemStructure, name, err); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// tensorManifest looks for the manifest of a save of ours to .safetensors files. Such a save writes a mark before the
// first file, and the manifest after the last.
func (s *state) tensorManifest(ctx context.Context, c contents) (done bool, err error) {
	all, bad, err := s.readManifests(ctx, c.manifests)
	if err != nil {
		return true, err
	}
	_, pruned := s.entries[pruneMark]
	switch {
	case pruned:
		s.problem(ProblemMissing, pruneMark, "a prune has begun to remove the checkpoint")
	case len(all) > 1:
		s.problem(ProblemManifest, ManifestName(all[1].ID), "there are several manifests, expected one")
	case len(all)+len(bad) == 0 && c.mark:
		s.problem(ProblemMissing, "manifest", "there is no manifest: the save has not finished, or was killed")
	case len(all) == 1 && all[0].Format == manifestTensors:
		return true, s.adoptTensors(ctx, all[0])
	case len(all) == 1:
		s.problem(ProblemMissing, MetadataName, "there is no .metadata: the save has not finished, or was killed")
	}
	s.problems = append(s.problems, bad...)
	return len(s.problems) > 0, nil
}

// adoptTensors checks the index of a manifest of .safetensors files.
func (s *state) adoptTensors(ctx context.Context, m *Manifest) error {
	s.adopt(m)
	s.Format = FormatSafetensors
	if m.Metadata.Name == "" {
		return nil
	}
	b, err := s.folder.ReadAll(ctx, m.Metadata.Name, safetensors.MaxIndex)
	if errs.Is(err, errs.NotFound) {
		s.problem(ProblemMissing, m.Metadata.Name, "the file is missing")
		return nil
	}
	if err != nil {
		return s.unreadable(ProblemMetadata, m.Metadata.Name, err)
	}
	if !m.Metadata.is(b) {
		s.problem(ProblemMetadata, m.Metadata.Name, "it differs from the one that the manifest records")
	}
	return nil
}

// absent returns the names of shards that the other names show to be missing.
func absent(names []string) []string {
	var out []string
	for _, name := range names {
		m := numbered.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		count, err := strconv.Atoi(m[3])
		if err != nil || count > mostFiles {
			continue
		}
		for i := 1; i <= count && len(out) < 100; i++ {
			other := fmt.Sprintf("%s-%0*d-of-%s%s", m[1], len(m[2]), i, m[3], tensorSuffix)
			if _, ok := slices.BinarySearch(names, other); !ok && !slices.Contains(out, other) {
				out = append(out, other)
			}
		}
	}
	return out
}

// tensorsOf returns the tensors of a .safetensors file.
func tensorsOf(ctx context.Context, f Folder, name string) ([]format.Tensor, error) {
	o, err := f.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer o.File.Close()
	h, err := safetensors.Parse(o.File, o.File.Size(), f.Shown(name), safetensors.Lenient)
	if err != nil {
		return nil, err
	}
	return h.Tensors, nil
}

// torchSuffixes end the names of files of torch.save.
var torchSuffixes = []string{".pt", ".pth", ".bin", ".ckpt"}

// isTorchFile reports whether a file with this name may be one of torch.save.
func isTorchFile(name string) bool {
	return slices.ContainsFunc(torchSuffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// IsFile reports whether a name is that of a checkpoint in a single file.
func IsFile(name string) bool { return isTorchFile(name) || strings.HasSuffix(name, tensorSuffix) }

// lookAtFile examines a checkpoint in a single file.
func lookAtFile(ctx context.Context, f Folder, e Entry) (*state, error) {
	s := &state{folder: f, entries: map[string]Entry{e.Name: e}}
	s.Name, s.Path, s.Time, s.changed, s.Format = e.Name, f.Shown(e.Name), e.Time, e.Time, FormatTorchFile
	s.data = []FileSum{{Name: e.Name, Size: -1}}
	if step, ok := stepOf(strings.TrimSuffix(e.Name, e.Name[max(0, strings.LastIndexByte(e.Name, '.')):])); ok {
		s.Step = &step
	}
	o, err := f.Open(ctx, e.Name)
	if err != nil {
		return nil, err
	}
	defer o.File.Close()
	if o.Sums != nil {
		s.entries[checksum.Path(e.Name)] = Entry{Name: checksum.Path(e.Name)}
	}
	if o.SumsErr != nil {
		if err := s.unreadable(ProblemChecksums, checksum.Path(e.Name), o.SumsErr); err != nil {
			return nil, err
		}
	}
	if strings.HasSuffix(e.Name, tensorSuffix) {
		s.Format = FormatSafetensors
		_, err = safetensors.Parse(o.File, o.File.Size(), f.Shown(e.Name), safetensors.Lenient)
	} else {
		_, err = recordsOf(o.File)
		err = errs.Wrap("open", f.Shown(e.Name), err)
	}
	if err != nil {
		if err := s.unreadable(ProblemStructure, e.Name, err); err != nil {
			return nil, err
		}
	}
	s.settle()
	return s, nil
}
