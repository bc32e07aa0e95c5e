// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

func prune(t testing.TB, root string, o PruneOptions) *Pruning {
	t.Helper()
	p, err := Prune(context.Background(), NewLocal(root), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// removed lists the names that a prune removed.
func (p *Pruning) removed() []string {
	out := []string{}
	for _, x := range p.All {
		if x.Removed {
			out = append(out, x.Name)
		}
	}
	return out
}

// reasonOf returns why a prune kept or removed a name.
func (p *Pruning) reasonOf(name string) string {
	for _, x := range p.All {
		if x.Name == name {
			return x.Reason
		}
	}
	return ""
}

func TestPruneKeeps(t *testing.T) {
	for _, x := range []struct {
		o    PruneOptions
		want []int64 // steps that stay, of 1 to 10
	}{
		{PruneOptions{KeepLast: 3}, []int64{8, 9, 10}},
		{PruneOptions{KeepLast: 1}, []int64{10}},
		{PruneOptions{KeepLast: 100}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{PruneOptions{KeepEvery: 4}, []int64{4, 8, 10}},
		{PruneOptions{KeepEvery: 3, KeepLast: 2}, []int64{3, 6, 9, 10}},
		{PruneOptions{KeepEvery: 1}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
	} {
		root := t.TempDir()
		for step := int64(1); step <= 10; step++ {
			save(t, filepath.Join(root, StepName(step)), uint64(step), step)
		}
		save(t, filepath.Join(root, "best"), 50, 4)
		dry := x.o
		dry.DryRun = true
		plan := prune(t, root, dry)
		if len(names(t, root)) != 11 || !plan.DryRun {
			t.Fatalf("a dry run removed something: %q", names(t, root))
		}
		done := prune(t, root, x.o)
		if !slices.Equal(plan.removed(), done.removed()) || plan.Bytes != done.Bytes {
			t.Errorf("%+v: planned %q, removed %q", x.o, plan.removed(), done.removed())
		}
		want := []string{"best"}
		for _, step := range x.want {
			want = append(want, StepName(step))
		}
		if got := names(t, root); !slices.Equal(got, want) {
			t.Errorf("%+v: %q is left, expected %q", x.o, got, want)
		}
		for _, name := range want {
			if v := verify(t, filepath.Join(root, name)); v.Verdict != VerdictGood {
				t.Errorf("%+v: %s: %+v", x.o, name, v)
			}
		}
		if again := prune(t, root, x.o); len(again.removed()) != 0 {
			t.Errorf("%+v: a second prune removes %q", x.o, again.removed())
		}
	}
}

// age sets the times of all files of a directory.
func age(t testing.TB, dir string, when time.Time) {
	t.Helper()
	for _, name := range names(t, dir) {
		if err := os.Chtimes(filepath.Join(dir, name), when, when); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(dir, when, when); err != nil {
		t.Fatal(err)
	}
}

// TestPruneLeavesRunningSaves: only what killed saves left before the last complete checkpoint is removed.
func TestPruneLeavesRunningSaves(t *testing.T) {
	root := t.TempDir()
	long := time.Now().Add(-time.Hour)
	unfinished := func(step int64, id uint64) string {
		dir := filepath.Join(root, StepName(step))
		write(t, filepath.Join(dir, "__0_0_"+idOf(id)+".distcp"), content(id, 100))
		return dir
	}
	old := unfinished(5, 1)
	age(t, old, long)
	if p := prune(t, root, PruneOptions{KeepLast: 1}); len(p.removed()) != 0 ||
		!strings.Contains(p.reasonOf(StepName(5)), "no complete checkpoint yet") {
		t.Errorf("without a complete checkpoint: %+v", p.All)
	}
	last := filepath.Join(root, StepName(20))
	save(t, last, 20, 20)
	age(t, last, time.Now().Add(-time.Minute))

	ahead := unfinished(30, 2) // newer by its step
	age(t, ahead, long)
	unfinished(10, 3) // newer by its time: a run that went back and saves step 10 again
	locked := unfinished(11, 4)
	age(t, locked, long)
	f, err := vfs.Create(filepath.Join(locked, "__1_0_"+idOf(4)+".distcp"), 10) // a writer that lives
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abandon()
	age(t, locked, long)
	if err := os.Mkdir(filepath.Join(root, StepName(12)), 0o755); err != nil { // a save that has just begun
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, StepName(13)), 0o755); err != nil {
		t.Fatal(err)
	}
	age(t, filepath.Join(root, StepName(13)), long)
	write(t, filepath.Join(root, StepName(14), "notes.txt"), []byte("x")) // no checkpoint at all
	age(t, filepath.Join(root, StepName(14)), long)
	damaged := filepath.Join(root, StepName(15))
	save(t, damaged, 15, 15)
	gone(t, damaged, "__1_0_"+idOf(15)+".distcp")
	write(t, filepath.Join(root, ".step-1."+idOf(1)+prunedSuffix, "a"), nil)
	write(t, filepath.Join(root, ".other."+idOf(1)+prunedSuffix, "a"), nil)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "precious"), []byte("x"))
	if err := os.Symlink(outside, filepath.Join(root, StepName(2))); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(old, "link")); err != nil {
		t.Fatal(err)
	}

	p := prune(t, root, PruneOptions{KeepLast: 1})
	want := []string{".step-1." + idOf(1) + prunedSuffix, StepName(5), StepName(13)}
	if got := p.removed(); !slices.Equal(got, want) {
		t.Errorf("removed %q, expected %q", got, want)
	}
	for step, says := range map[int64]string{10: "files are newer", 11: "is writing", 12: "files are newer",
		15: "has .metadata but is not complete", 20: "last complete", 30: "step is newer"} {
		if got := p.reasonOf(StepName(step)); !strings.Contains(got, says) {
			t.Errorf("step %d: %q, expected %q", step, got, says)
		}
	}
	left := []string{".other." + idOf(1) + prunedSuffix, StepName(2), StepName(10), StepName(11), StepName(12),
		StepName(14), StepName(15), StepName(20), StepName(30)}
	if got := names(t, root); !slices.Equal(got, left) {
		t.Errorf("%q is left, expected %q", got, left)
	}
	if b, err := os.ReadFile(filepath.Join(outside, "precious")); err != nil || string(b) != "x" {
		t.Errorf("a file behind a link is gone: %v", err)
	}
	if v := verify(t, last); v.Verdict != VerdictGood {
		t.Errorf("%+v", v)
	}
}

func TestPruneRefuses(t *testing.T) {
	for _, o := range []PruneOptions{{}, {KeepLast: -1}, {KeepEvery: -5}} {
		if _, err := Prune(t.Context(), NewLocal(t.TempDir()), o); !errs.Is(err, errs.Invalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := Prune(t.Context(), NewLocal(filepath.Join(t.TempDir(), "none")), PruneOptions{KeepLast: 1}); !errs.Is(err,
		errs.NotFound) {
		t.Errorf("a missing root: %v", err)
	}
}

// errStop ends an operation as a kill would.
var errStop = errors.New("stopped")

// stopping is a folder whose changes stop after a number of steps. Every step is durable before the next.
type stopping struct {
	Folder
	left *int
}

func (s stopping) step() error {
	if *s.left--; *s.left < 0 {
		return errStop
	}
	return nil
}

func (s stopping) Put(ctx context.Context, name string, b []byte) error {
	if err := s.step(); err != nil {
		return err
	}
	return s.Folder.Put(ctx, name, b)
}

func (s stopping) Remove(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := s.step(); err != nil {
			return err
		}
		if err := s.Folder.Remove(ctx, []string{name}); err != nil {
			return err
		}
	}
	return nil
}

func (s stopping) Hide(ctx context.Context, name string) (string, error) {
	if err := s.step(); err != nil {
		return name, err
	}
	return s.Folder.Hide(ctx, name)
}

func (s stopping) Discard(ctx context.Context, name string) error {
	f := s.Folder.Folder(name)
	all, err := f.Entries(ctx)
	if err != nil {
		return err
	}
	for _, e := range all {
		if err := (stopping{f, s.left}).Remove(ctx, []string{e.Name}); err != nil {
			return err
		}
	}
	if err := s.step(); err != nil {
		return err
	}
	return s.Folder.Discard(ctx, name)
}

// TestPruneStoppedAtEachStep: wherever a prune stops, each checkpoint is complete or not listed, those to keep are
// complete, and the next prune removes the rest.
func TestPruneStoppedAtEachStep(t *testing.T) {
	for steps := 0; ; steps++ {
		root := t.TempDir()
		for step := int64(1); step <= 4; step++ {
			save(t, filepath.Join(root, StepName(step)), uint64(step), step)
			age(t, filepath.Join(root, StepName(step)), time.Now().Add(time.Duration(step-10)*time.Minute))
		}
		left := steps
		_, err := Prune(t.Context(), stopRoot{stopping{NewLocal(root), &left}}, PruneOptions{KeepLast: 2})
		if err != nil && !errors.Is(err, errStop) {
			t.Fatal(err)
		}
		for _, c := range all(t, root) {
			if c.Complete {
				if v := verify(t, filepath.Join(root, c.Name)); v.Verdict != VerdictGood {
					t.Errorf("after %d steps %s is listed, and is %s", steps, c.Name, v.Verdict)
				}
			}
		}
		prune(t, root, PruneOptions{KeepLast: 2})
		if got, want := names(t, root), []string{StepName(3), StepName(4)}; !slices.Equal(got, want) {
			t.Errorf("after %d steps and another prune, %q is left", steps, got)
		}
		if err == nil {
			if steps < 10 {
				t.Errorf("a prune took %d steps", steps)
			}
			return
		}
	}
}

// stopRoot gives its child folders the same count of steps.
type stopRoot struct{ stopping }

func (s stopRoot) Folder(name string) Folder {
	return stopRoot{stopping{s.stopping.Folder.Folder(name), s.left}}
}

// TestCommitStoppedAtEachStep: wherever a commit stops, the old checkpoint or the new one is complete.
func TestCommitStoppedAtEachStep(t *testing.T) {
	for steps := 0; ; steps++ {
		dir := filepath.Join(t.TempDir(), "c")
		save(t, dir, 1, 10)
		left := steps
		draft := draftOf(t, dir, 2, 20)
		c, err := Commit(t.Context(), stopRoot{stopping{NewLocal(dir), &left}}, CommitRequest{Draft: draft,
			Metadata: content(2, 500), Now: time.Now()})
		if err != nil && !errors.Is(err, errStop) {
			t.Fatal(err)
		}
		found := all(t, dir)
		want := idOf(1)
		if err == nil {
			want = idOf(2)
		}
		if len(found) != 1 || !found[0].Complete || found[0].ID != want || verify(t, dir).Verdict != VerdictGood {
			t.Errorf("after %d steps: %s", steps, shown(found))
		}
		if err == nil && len(c.Notes) == 0 {
			if steps < 9 {
				t.Errorf("a commit took %d steps", steps)
			}
			return
		}
		save(t, dir, 3, 30)
		if got := names(t, dir); len(got) != 7 || !strings.Contains(fmt.Sprint(got), idOf(3)) {
			t.Errorf("after %d steps and another save: %q", steps, got)
		}
	}
}
