// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/checkpoint"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Checkpoint describes one checkpoint that ListCheckpoints found.
type Checkpoint struct {
	Name string `json:"name"` // name in its root; "." if the path is a checkpoint itself
	Path string `json:"path"`
	// Step is the training step, from the name step-<number> or from the manifest; nil if there is none.
	Step     *int64 `json:"step"`
	Complete bool   `json:"complete"`
	Reason   string `json:"reason,omitempty"` // why the checkpoint is not complete
	// Format is "nebulaio" (PyTorch's format with a manifest), "torch" (written by PyTorch itself), "safetensors",
	// "torch-file" (one file of torch.save), or empty if the format is not known.
	Format string    `json:"format"`
	Time   time.Time `json:"time"`
	Bytes  int64     `json:"bytes"` // of the data files
	Files  int       `json:"files"` // number of data files
	World  int       `json:"world"` // number of processes that saved it; 0 if not known
	// Checksums reports whether there are checksums of all data files.
	Checksums bool   `json:"checksums"`
	ID        string `json:"id,omitempty"` // of the save, for the format "nebulaio"
}

// CheckpointListOptions choose the checkpoints that ListCheckpoints returns.
type CheckpointListOptions struct {
	// All also returns checkpoints that are not complete.
	All bool
	// Client chooses the server of checkpoints in a bucket.
	Client ClientOptions
}

// CheckpointVerifyOptions choose how VerifyCheckpoint runs.
type CheckpointVerifyOptions struct {
	// Progress, if not nil, is called with the bytes that were compared so far and with the bytes to compare. Calls do not
	// overlap.
	Progress func(done, total int64)
	// Client chooses the server of a checkpoint in a bucket.
	Client ClientOptions
}

// CheckpointVerification is the result of VerifyCheckpoint.
type CheckpointVerification struct {
	Checkpoint
	// Verdict is "good" (all bytes agree with checksums), "damaged", "incomplete" (something is missing) or "no checksums"
	// (what can be checked is right, but some files have no checksums).
	Verdict  string              `json:"verdict"`
	Problems []CheckpointProblem `json:"problems"`
	More     int                 `json:"more_problems"` // number of problems that are not listed
	// Unverified lists the files without checksums.
	Unverified []string `json:"unverified"`
	// Foreign lists data files in the directory that do not belong to the checkpoint, as killed saves leave them.
	Foreign []string `json:"foreign"`
	Notes   []string `json:"notes"`
	Read    int64    `json:"read"` // bytes that were read and compared
	Seconds float64  `json:"seconds"`
}

// CheckpointProblem is something that is wrong with a checkpoint.
type CheckpointProblem struct {
	// Kind is "missing", "size", "damaged", "metadata", "manifest", "checksums", "structure" or "foreign".
	Kind    string `json:"kind"`
	File    string `json:"file"`
	Message string `json:"message"`
	// Offset and Size are the damaged range in bytes; both are 0 if the problem has no range.
	Offset int64 `json:"offset"`
	Size   int64 `json:"size"`
	// Tensors names the tensors in the range. For a file of torch.save, it names the records, such as archive/data/17.
	Tensors     []string `json:"tensors"`
	MoreTensors int      `json:"more_tensors"` // number of tensors that are not named
}

// CheckpointPruneOptions choose the checkpoints that PruneCheckpoints keeps. At least one of KeepLast and KeepEvery
// must be set.
type CheckpointPruneOptions struct {
	// KeepLast is the number of newest complete checkpoints to keep.
	KeepLast int
	// KeepEvery keeps complete checkpoints with a step that is divisible by this number.
	KeepEvery int64
	// DryRun removes nothing.
	DryRun bool
	// Client chooses the server of checkpoints in a bucket.
	Client ClientOptions
}

// CheckpointPruning is the result of PruneCheckpoints.
type CheckpointPruning struct {
	Path    string             `json:"path"`
	Removed []PrunedCheckpoint `json:"removed"` // sorted by step
	Kept    []PrunedCheckpoint `json:"kept"`    // sorted by step
	Bytes   int64              `json:"bytes"`   // of the removed files
	DryRun  bool               `json:"dry_run"`
}

// PrunedCheckpoint is a directory that PruneCheckpoints removed or kept.
type PrunedCheckpoint struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Step   *int64 `json:"step"` // nil if the directory is not named as a step
	Bytes  int64  `json:"bytes"`
	Reason string `json:"reason"` // why it was removed or kept
}

// ListCheckpoints returns the checkpoints at a path, sorted by step, then by time. The path is a root of checkpoints,
// one checkpoint, or an s3:// prefix of either. A checkpoint that is not complete is left out, unless o.All is set. The
// last entry with a step is the latest checkpoint. If the path does not exist, the error is of kind NotFound.
func (s *System) ListCheckpoints(ctx context.Context, path string,
	o CheckpointListOptions) (all []Checkpoint, err error) {
	err = atCheckpoints(s, "list checkpoints", path, o.Client, func(t checkpoint.Target) error {
		found, err := checkpoint.List(ctx, t, o.All)
		all = convert(found, func(c checkpoint.Checkpoint) Checkpoint { return Checkpoint(c) })
		return err
	})
	return all, err
}

// VerifyCheckpoint reads all files of the checkpoint at a path and compares them with their checksums. The path is a
// checkpoint, or a single file of torch.save or .safetensors, or an s3:// URL of either. Damage is no error: it is in
// the result. If there is no checkpoint at the path, the error is of kind NotFound.
func (s *System) VerifyCheckpoint(ctx context.Context, path string,
	o CheckpointVerifyOptions) (v CheckpointVerification,
	err error) {
	began := time.Now()
	err = atCheckpoints(s, "verify checkpoint", path, o.Client, func(t checkpoint.Target) error {
		r, err := checkpoint.Verify(ctx, t, checkpoint.VerifyOptions{Progress: o.Progress})
		if err != nil {
			return err
		}
		v = CheckpointVerification{Checkpoint: Checkpoint(r.Checkpoint), Verdict: r.Verdict, More: r.More,
			Problems: convert(append([]checkpoint.Problem{}, r.Problems...), func(p checkpoint.Problem) CheckpointProblem {
				p.Tensors = append([]string{}, p.Tensors...)
				return CheckpointProblem(p)
			}),
			Unverified: append([]string{}, r.Unverified...), Foreign: append([]string{}, r.Foreign...),
			Notes: append([]string{}, r.Notes...), Read: r.Read, Seconds: time.Since(began).Seconds()}
		return nil
	})
	return v, err
}

// PruneCheckpoints removes checkpoints from the root at a path or an s3:// prefix. PruneCheckpoints looks only at
// directories named step-<number>, and keeps all others. PruneCheckpoints never removes the last complete checkpoint, a
// directory to which a save may still write, or a damaged checkpoint. PruneCheckpoints removes what killed saves left.
// If the process is killed, each checkpoint is complete, or is no longer listed and is removed by the next call.
func (s *System) PruneCheckpoints(ctx context.Context, path string, o CheckpointPruneOptions) (p CheckpointPruning,
	err error) {
	err = atCheckpoints(s, "prune checkpoints", path, o.Client, func(t checkpoint.Target) error {
		if t.File != "" {
			return errs.New(errs.Invalid, "prune checkpoints", path, "is a file; expected a directory of checkpoints")
		}
		r, err := checkpoint.Prune(ctx, t.Folder, checkpoint.PruneOptions{KeepLast: o.KeepLast, KeepEvery: o.KeepEvery,
			DryRun: o.DryRun})
		if err != nil {
			return err
		}
		p = CheckpointPruning{Path: path, Removed: []PrunedCheckpoint{}, Kept: []PrunedCheckpoint{}, Bytes: r.Bytes,
			DryRun: r.DryRun}
		for _, x := range r.All {
			one := PrunedCheckpoint{Name: x.Name, Path: x.Path, Step: x.Step, Bytes: x.Bytes, Reason: x.Reason}
			if x.Removed {
				p.Removed = append(p.Removed, one)
			} else {
				p.Kept = append(p.Kept, one)
			}
		}
		return nil
	})
	return p, err
}

// atCheckpoints calls do with the target at a path or URL.
func atCheckpoints(s *System, op, path string, o ClientOptions, do func(checkpoint.Target) error) (err error) {
	if err := s.sys.Enter(op, path); err != nil {
		return err
	}
	defer s.sys.Leave()
	at, file := path, ""
	if IsObjectURL(path) {
		if name := path[strings.LastIndexByte(path, '/')+1:]; checkpoint.IsFile(name) {
			at, file = strings.TrimSuffix(path, "/"+name), name
		}
	} else if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
		at, file = filepath.Dir(path), filepath.Base(path)
	}
	f, done, err := checkpointFolder(s, op, at, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	return do(checkpoint.Target{Folder: f, File: file})
}
