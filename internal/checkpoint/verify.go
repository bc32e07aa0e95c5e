// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Verdicts of Verify.
const (
	VerdictGood        = "good"         // all bytes agree with checksums
	VerdictDamaged     = "damaged"      // some bytes differ, or the structure is broken
	VerdictIncomplete  = "incomplete"   // something is missing
	VerdictNoChecksums = "no checksums" // what can be checked is right, but some files have no checksums
)

// Kinds of problems.
const (
	ProblemMissing   = "missing"   // a file is missing
	ProblemSize      = "size"      // a file has another size than recorded
	ProblemDamaged   = "damaged"   // content differs from its checksum
	ProblemMetadata  = "metadata"  // .metadata is damaged, or of another run
	ProblemManifest  = "manifest"  // the manifest is damaged
	ProblemChecksums = "checksums" // a file of checksums is damaged, or of another file
	ProblemStructure = "structure" // the content breaks its format
	ProblemForeign   = "foreign"   // a file is not what it should be, such as a link
)

// mostProblems is the largest number of problems that a verification lists.
const mostProblems = 1000

// Problem is something that is wrong with a checkpoint.
type Problem struct {
	Kind    string
	File    string
	Message string
	// Offset and Size are the damaged range in bytes; both are 0 if the problem has no range.
	Offset, Size int64
	Tensors      []string // the tensors or records in the range
	MoreTensors  int      // number of tensors that are not listed
}

// Verification is the result of Verify.
type Verification struct {
	Checkpoint
	Verdict    string
	Problems   []Problem
	More       int      // number of problems that are not listed
	Unverified []string // files without checksums
	Foreign    []string // data files that do not belong to the checkpoint
	Notes      []string
	Read       int64 // bytes that were read and compared
}

// VerifyOptions choose how Verify runs.
type VerifyOptions struct {
	// Progress, if not nil, is called with the bytes that were compared, and with the bytes of all files to compare. Calls
	// do not overlap.
	Progress func(done, total int64)
}

// Verify reads all files of one checkpoint and compares them with their checksums. If the target holds no checkpoint,
// the error is of kind NotFound. Damage is no error: it is in the result.
func Verify(ctx context.Context, t Target, o VerifyOptions) (*Verification, error) {
	s, err := t.one(ctx)
	if err != nil {
		return nil, err
	}
	if s.Format == "" {
		return nil, errs.New(errs.NotFound, "verify checkpoint", t.shown(), "there is no checkpoint").
			WithFix("list the checkpoints below a directory with: nebulaio checkpoint list PATH")
	}
	v := &verifier{state: s, join: checksum.NewJoiner(), out: &Verification{Checkpoint: s.Checkpoint},
		progress: o.Progress}
	for _, p := range s.problems {
		v.add(p)
	}
	if err := v.run(ctx); err != nil {
		var e *errs.Error
		if ctx.Err() != nil && (!errors.As(err, &e) || e.Kind != errs.Cancelled) {
			err = &errs.Error{Kind: errs.Cancelled, Op: "verify checkpoint", Name: t.shown(), Err: context.Cause(ctx)}
		}
		return nil, err
	}
	v.judge()
	return v.out, nil
}

// verifier verifies one checkpoint.
type verifier struct {
	*state
	out      *Verification
	join     *checksum.Joiner
	progress func(done, total int64)
	told     chan struct{} // keeps calls of progress apart
	total    int64
}

func (v *verifier) add(p Problem) {
	if len(v.out.Problems) == mostProblems {
		v.out.More++
		return
	}
	v.out.Problems = append(v.out.Problems, p)
}

func (v *verifier) run(ctx context.Context) error {
	v.told = make(chan struct{}, 1)
	for _, m := range v.manifests {
		if err := v.manifestContent(ctx, m); err != nil {
			return err
		}
	}
	if v.unsure != "" {
		v.out.Notes = append(v.out.Notes, v.unsure)
	}
	var todo []FileSum
	for _, x := range v.data {
		if e := v.entries[x.Name]; e.Kind == KindFile && e.Name != "" {
			todo = append(todo, x)
			v.total += e.Size
		}
	}
	memory, err := newBuffers(v.total)
	if err != nil {
		return err
	}
	found := make([]finding, len(todo))
	err = errors.Join(v.files(ctx, todo, found, memory.each), memory.free())
	if err != nil {
		return err
	}
	for i, f := range found {
		for _, p := range f.problems {
			v.add(p)
		}
		v.out.More += f.more
		if f.unverified {
			v.out.Unverified = append(v.out.Unverified, todo[i].Name)
		}
	}
	v.foreign()
	return nil
}

// finding is what was found out about one file.
type finding struct {
	problems   []Problem
	more       int // number of damaged ranges that are not in problems
	unverified bool
}

// smallFile is the size below which several files are read at the same time. Larger files are read one after the other,
// each with all buffers.
const smallFile = 64 << 20

// files verifies the files and writes what it finds to found. The first error ends the work.
func (v *verifier) files(ctx context.Context, todo []FileSum, found []finding, memory [][]byte) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var small []int
	for i, x := range todo {
		if v.entries[x.Name].Size < smallFile {
			small = append(small, i)
			continue
		}
		var err error
		if found[i], err = v.file(ctx, x, memory); err != nil {
			return err
		}
	}
	var next atomic.Int64
	var group sync.WaitGroup
	for w := range min(len(memory), len(small)) {
		group.Go(func() {
			for ctx.Err() == nil {
				k := int(next.Add(1)) - 1
				if k >= len(small) {
					return
				}
				var err error
				if found[small[k]], err = v.file(ctx, todo[small[k]], memory[w:w+1]); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// count reports the progress: bytes that were compared, and bytes that will not be.
func (v *verifier) count(done, skipped int64) {
	v.told <- struct{}{}
	v.out.Read += done
	v.total -= skipped
	if v.progress != nil {
		v.progress(v.out.Read, v.total)
	}
	<-v.told
}

// manifestContent compares a manifest with its checksums, and reads the places of the tensors.
func (v *verifier) manifestContent(ctx context.Context, m *Manifest) error {
	name := ManifestName(m.ID)
	b, err := v.folder.ReadAll(ctx, name, MostManifest)
	if err != nil {
		return err
	}
	o, err := v.folder.Open(ctx, name)
	if err != nil {
		return err
	}
	defer o.File.Close()
	switch {
	case o.SumsErr != nil:
		v.add(Problem{Kind: ProblemChecksums, File: checksum.Path(name), Message: errs.MessageOf(o.SumsErr)})
	case o.Sums == nil:
		v.out.Notes = append(v.out.Notes, name+" has no checksums of its own")
	default:
		for i, want := range o.Sums.Blocks {
			off, n := o.Sums.Extent(int64(i))
			if off+n > int64(len(b)) || checksum.Of(b[off:off+n]) != want {
				v.add(Problem{Kind: ProblemManifest, File: name, Offset: off, Size: n,
					Message: "it differs from its checksum"})
				break
			}
		}
	}
	full, err := ParseManifest(v.folder.Shown(name), b)
	if err != nil {
		v.add(Problem{Kind: ProblemManifest, File: name, Message: errs.MessageOf(err)})
		return nil
	}
	m.Items = full.Items
	return nil
}

// file verifies one data file.
func (v *verifier) file(ctx context.Context, x FileSum, memory [][]byte) (f finding, err error) {
	add := func(p Problem) { f.problems = append(f.problems, p) }
	o, err := v.folder.Open(ctx, x.Name)
	if err != nil {
		if ctx.Err() != nil || errs.Is(err, errs.Permission) {
			return f, err
		}
		add(Problem{Kind: ProblemDamaged, File: x.Name, Message: errs.MessageOf(err)})
		return f, nil
	}
	defer o.File.Close()
	if o.SumsErr != nil {
		add(Problem{Kind: ProblemChecksums, File: checksum.Path(x.Name), Message: errs.MessageOf(o.SumsErr)})
		o.Sums = nil
	}
	whole, hasWhole := x.sum()
	if x.Size >= 0 && x.Size != o.File.Size() {
		hasWhole = false // the size is a problem already
	}
	if o.Sums == nil && !hasWhole {
		f.unverified = true
		if o.File.Size() == 0 {
			add(Problem{Kind: ProblemSize, File: x.Name, Message: "the file is empty"})
		}
		f.problems = append(f.problems, v.structure(ctx, x.Name, o)...)
		v.count(0, o.File.Size())
		return f, nil
	}
	r := newReading(o)
	if err := r.read(ctx, v.join, memory, func(n int64) { v.count(n, 0) }); err != nil {
		if ctx.Err() != nil {
			return f, err
		}
		add(Problem{Kind: ProblemDamaged, File: x.Name, Message: "it cannot be read: " + errs.MessageOf(err)})
		return f, nil
	}
	bad := r.damaged()
	if len(bad) == 0 && (!hasWhole || r.whole() == whole) {
		f.problems = append(f.problems, v.structure(ctx, x.Name, o)...)
		return f, nil
	}
	extents, _ := v.extentsOf(ctx, x.Name, o.File) // a damaged header names nothing
	why := ""
	switch {
	case len(bad) == 0 && o.Sums == nil:
		why = "the content differs from the checksum in the manifest; there are no checksums of blocks that show where"
	case len(bad) == 0:
		why = "the content agrees with " + checksum.Path(x.Name) + ", but differs from the checksum in the manifest: " +
			"it is of another save"
	case bad[0].size == o.File.Size() && len(r.found) > 1:
		why = "all blocks differ from their checksums: this is another file"
	}
	if len(bad) == 0 {
		bad = []extent{{size: o.File.Size()}}
	}
	for _, d := range bad[:min(len(bad), mostProblems)] {
		add(damage(x.Name, why, d, extents))
	}
	f.more = len(bad) - min(len(bad), mostProblems)
	return f, nil
}

// damage describes a damaged range, with the tensors in it.
func damage(file, why string, d extent, extents []extent) Problem {
	if why == "" {
		why = fmt.Sprintf("bytes %d to %d differ from their checksums", d.off, d.off+d.size)
	}
	p := Problem{Kind: ProblemDamaged, File: file, Offset: d.off, Size: d.size, Message: why}
	var count int
	p.Tensors, count = namesAt(extents, d.off, d.size)
	p.MoreTensors = count - len(p.Tensors)
	return p
}

// structure checks that the content of a file has its format.
func (v *verifier) structure(ctx context.Context, name string, o Opened) []Problem {
	if v.Format != FormatTorchFile && v.Format != FormatSafetensors ||
		slices.ContainsFunc(v.problems, func(p Problem) bool { return p.Kind == ProblemStructure && p.File == name }) {
		return nil
	}
	if _, err := v.extentsOf(ctx, name, o.File); err != nil && ctx.Err() == nil {
		return []Problem{{Kind: ProblemStructure, File: name, Message: errs.MessageOf(err)}}
	}
	return nil
}

// foreign lists the data files and manifests that do not belong to the checkpoint. A killed save leaves such files.
func (v *verifier) foreign() {
	if v.Format != FormatNebulaIO && v.Format != FormatTorch {
		return
	}
	own := map[string]bool{}
	for _, m := range v.manifests {
		own[ManifestName(m.ID)] = true
	}
	for _, x := range v.data {
		own[x.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(v.entries)) {
		_, manifest := manifestID(name)
		if (manifest || strings.HasSuffix(name, dataSuffix)) && !own[name] {
			v.out.Foreign = append(v.out.Foreign, name)
		}
	}
}

// judge sets the verdict.
func (v *verifier) judge() {
	v.out.Verdict = VerdictGood
	if len(v.out.Unverified) > 0 {
		v.out.Verdict = VerdictNoChecksums
	}
	for _, p := range v.out.Problems {
		if p.Kind == ProblemMissing && v.out.Verdict != VerdictDamaged {
			v.out.Verdict = VerdictIncomplete
		}
		if p.Kind != ProblemMissing {
			v.out.Verdict = VerdictDamaged
		}
	}
}
