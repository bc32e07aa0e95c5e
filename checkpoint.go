// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"time"

	"github.com/nebulaio/nebulaio/internal/checkpoint"
)

// CheckpointCommitOptions describe the checkpoint that CommitCheckpoint makes visible.
type CheckpointCommitOptions struct {
	// Manifest is a JSON object with the fields "id" (16 hex digits), "step" (a number or null), "world", "files" and
	// "items". An entry of "files" has the fields "name", "size" and "crc64nvme". An entry of "items" has the fields
	// "tensor", "file", "offset", "size", "dtype", "shape" and "at". CommitCheckpoint adds the fields "version", "format",
	// "created", "bytes" and "metadata". If a file has no "crc64nvme", it is computed from FILE.crc64nvme, if there is
	// one.
	Manifest []byte
	// Metadata is the content of the file .metadata.
	Metadata []byte
	// Client chooses the server of a checkpoint in a bucket.
	Client ClientOptions
}

// CheckpointCommit describes a checkpoint that CommitCheckpoint has made visible.
type CheckpointCommit struct {
	Path     string   `json:"path"`
	ID       string   `json:"id"`
	Manifest string   `json:"manifest"` // name of the manifest
	Step     *int64   `json:"step"`     // nil if the checkpoint has no step
	Files    int      `json:"files"`
	Bytes    int64    `json:"bytes"`   // of all data files
	Removed  []string `json:"removed"` // files of older saves that were removed from the directory
	Notes    []string `json:"notes"`
}

// CommitCheckpoint makes a checkpoint complete whose data files are written and durable. The path is a directory or an
// s3:// prefix. CommitCheckpoint writes the manifest, then puts .metadata in place, and then removes the files of older
// saves from the directory; each step is durable before the next. If a data file is missing, the error is of kind
// NotFound. If CommitCheckpoint fails, an older checkpoint in the directory is still complete. In a job of
// several processes, a single process calls CommitCheckpoint, after all processes have written their files.
func (s *System) CommitCheckpoint(ctx context.Context, path string, o CheckpointCommitOptions) (c CheckpointCommit,
	err error) {
	const op = "commit checkpoint"
	if err := s.sys.Enter(op, path); err != nil {
		return c, err
	}
	defer s.sys.Leave()
	f, done, err := checkpointFolder(s, op, path, o.Client)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, done()) }()
	r, err := checkpoint.Commit(ctx, f, checkpoint.CommitRequest{Draft: o.Manifest, Metadata: o.Metadata, Now: time.Now()})
	if err != nil {
		return c, err
	}
	return CheckpointCommit{Path: path, ID: r.Manifest.ID, Manifest: r.Name, Step: r.Manifest.Step,
		Files: len(r.Manifest.Files), Bytes: r.Manifest.Bytes, Removed: append([]string{}, r.Removed...),
		Notes: append([]string{}, r.Notes...)}, nil
}
